/** What every command gets, and how it ends: with an exit code. */
import { createClient, type PacelineClient } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import { readConfiguration } from './configuration.js';
import { retryOptions } from './retry.js';
import type { Command } from 'commander';
import type { LocalStack } from './stack/local-stack.js';
import type { Terminal } from './terminal/terminal.js';

/** What a command does. @returns the exit code */
export type Action = (context: CommandContext, command: Command, ...args: never[]) => Promise<number>;
/** Makes of it what commander calls: with a terminal, and with failures told. */
export type Act = (action: Action) => (...args: unknown[]) => Promise<void>;

export interface CommandContext {
  readonly terminal: Terminal;
  readonly env: NodeJS.ProcessEnv;
  /** A client for the configured api. @throws UserError NO_KEY */
  connect(): PacelineClient;
  /** Called by `up` when everything runs: `npm run dev` restarts parts of it. */
  readonly onStack?: OnStack | undefined;
}

export type OnStack = (stack: LocalStack) => void;

export function createContext(terminal: Terminal, env: NodeJS.ProcessEnv, onStack?: OnStack): CommandContext {
  return {
    terminal,
    env,
    onStack,
    connect() {
      const configuration = readConfiguration(env, (text) => terminal.note(`${terminal.style('yellow', 'warning', 'stderr')} ${text}`));
      const { url, apiKey, keyIsFor, file } = configuration;
      if (!apiKey) {
        const another = keyIsFor === undefined ? '' : ` The key in ${file} is for ${keyIsFor}, and goes nowhere else.`;
        throw new UserError('NO_KEY', `There is no api key for ${url}.${another}`, {
          hint: '`paceline up` starts a local stack and writes its key; for another api set PACELINE_URL and PACELINE_API_KEY.',
          exit: 'keyRefused',
        });
      }
      return createClient({ url, apiKey, retry: retryOptions(configuration, terminal) });
    },
  };
}

/** Aborted by the first Ctrl-C; a second one ends the process at once. */
export function interruptSignal(): { readonly signal: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const onInterrupt = (): void => {
    if (controller.signal.aborted) process.exit(130);
    controller.abort();
  };
  process.on('SIGINT', onInterrupt);
  process.on('SIGTERM', onInterrupt);
  return {
    signal: controller.signal,
    dispose: () => {
      process.off('SIGINT', onInterrupt);
      process.off('SIGTERM', onInterrupt);
    },
  };
}

/** Until `dispose`, Ctrl-C ends the process at once, after `clean` has removed what is half done. */
export function cleanUpOnInterrupt(clean: () => void): { dispose(): void } {
  const onInterrupt = (): void => {
    clean();
    process.exit(EXIT.interrupted);
  };
  process.on('SIGINT', onInterrupt);
  process.on('SIGTERM', onInterrupt);
  return {
    dispose: () => {
      process.off('SIGINT', onInterrupt);
      process.off('SIGTERM', onInterrupt);
    },
  };
}

/** A whole number given on the command line. @throws UserError FLAG_INVALID */
export function wholeNumber(flag: string, minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= minimum && value <= maximum) return value;
    throw new UserError(
      'FLAG_INVALID',
      `${flag} ${JSON.stringify(text.slice(0, 40))} is not a whole number from ${minimum} to ${maximum}.`,
      { exit: 'usage' },
    );
  };
}
