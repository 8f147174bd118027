import type { LoggerService } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';

/** Injection token of the process's logger. */
export const LOGGER = Symbol('logger');

/** What the framework itself has to say: faults and warnings; its start-up chatter only at debug. */
export function frameworkLogger(log: Logger): LoggerService {
  const text = (message: unknown, rest: unknown[]): [object, string] => {
    const context = typeof rest.at(-1) === 'string' ? rest.at(-1) : undefined;
    return [
      { context, ...(message instanceof Error ? { err: message } : {}) },
      message instanceof Error ? message.message : String(message),
    ];
  };
  return {
    log: (message: unknown, ...rest: unknown[]) => log.debug(...text(message, rest)),
    debug: (message: unknown, ...rest: unknown[]) => log.debug(...text(message, rest)),
    verbose: (message: unknown, ...rest: unknown[]) => log.trace(...text(message, rest)),
    warn: (message: unknown, ...rest: unknown[]) => log.warn(...text(message, rest)),
    error: (message: unknown, ...rest: unknown[]) => log.error(...text(message, rest)),
    fatal: (message: unknown, ...rest: unknown[]) => log.fatal(...text(message, rest)),
  };
}
