import type { Connection } from '@paceline/exchange';

/** A connection over which what is said comes later, in its order. It ends after what was said before. */
export function delayed(connection: Connection, delayMs: () => number): Connection {
  const waiting: (() => void)[] = [];
  let hasEnded = false;
  // Timers may fire in another order.
  const later = (act: () => void): void => {
    waiting.push(act);
    setTimeout(() => {
      const next = waiting.shift()!;
      if (connection.isOpen) next();
    }, delayMs());
  };
  return new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name === 'isOpen') return value === true && !hasEnded;
      if (typeof value !== 'function') return value;
      const call = value.bind(target) as (...args: unknown[]) => unknown;
      if (name !== 'sendMessage' && name !== 'sendData' && name !== 'close') return call;
      return (...args: unknown[]) => {
        if (hasEnded) return;
        hasEnded = name === 'close';
        later(() => void call(...args));
      };
    },
  });
}

/** A connection over which messages and data leave as long as `mayLeave` says so; it is asked before each, with what is to leave. */
export function whileItMay(connection: Connection, mayLeave: (said: unknown) => boolean): Connection {
  return new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const call = value.bind(target) as (...args: unknown[]) => unknown;
      if (name !== 'sendMessage' && name !== 'sendData') return call;
      return (...args: unknown[]) => (mayLeave(args[0]) ? call(...args) : undefined);
    },
  });
}
