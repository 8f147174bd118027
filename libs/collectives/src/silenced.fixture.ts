import type { Connection } from '@paceline/exchange';

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
