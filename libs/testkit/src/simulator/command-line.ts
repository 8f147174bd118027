/** What `npm run simulate` is asked for. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import type { CheckMode } from './simulate.js';
import { RUN_MODES, type RunMode } from './run/async-run.js';

const DEFAULT_SEEDS = 1_000;

export const USAGE = `npm run simulate -- [flags]

Simulates whole runs under faults, one per seed, and says which invariants broke and which rows of the state tables were taken
(docs/simulation.md). Ends with 0 when no seed failed, with 1 when one did, with 2 when a flag is wrong.

  --seeds N      so many seeds, one after the other (${DEFAULT_SEEDS}; 1 where --seed is given)
  --seed S       the first of them (1)
  --mode M       of one mode: ${RUN_MODES.join(', ')}; without it each seed draws one
  --check C      safety (faults go on) or liveness (faults stop, the run must end); without it each seed draws one
  --jobs J       threads (all cores)
  --json         everything as one line of JSON
  --help         this text
`;

/** The flags cannot be understood; the message names the one, and what it takes. */
export class UsageError extends Error {}

export interface Command {
  readonly first: number;
  readonly seeds: number;
  readonly jobs: number;
  readonly check: CheckMode | undefined;
  /** Without it each seed draws one. */
  readonly mode: RunMode | undefined;
  readonly json: boolean;
}

/** @throws UsageError */
export function parseCommand(args: readonly string[]): Command | 'help' {
  const values = valuesOf(args);
  if (values.help) return 'help';
  const whole = (name: 'seeds' | 'seed' | 'jobs', fallback: number): number => {
    const value = Number(values[name] ?? fallback);
    if (!Number.isSafeInteger(value) || values[name] === '' || value < (name === 'seed' ? 0 : 1))
      throw new UsageError(`--${name} ${values[name]}: a whole number is needed`);
    return value;
  };
  const seeds = whole('seeds', values.seed === undefined ? DEFAULT_SEEDS : 1);
  return {
    first: whole('seed', 1),
    seeds,
    jobs: Math.min(whole('jobs', availableParallelism()), seeds),
    json: values.json,
    check: oneOf('check', values.check, ['safety', 'liveness']),
    mode: oneOf('mode', values.mode, RUN_MODES),
  };
}

function valuesOf(args: readonly string[]) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean', default: false } as const;
  try {
    return parseArgs({
      args: [...args],
      options: { seeds: text, seed: text, check: text, mode: text, jobs: text, json: flag, help: { ...flag, short: 'h' } },
    }).values;
  } catch (error) {
    // Its first sentence names the flag; what follows speaks of positional arguments, of which there are none here.
    throw new UsageError((error as Error).message.split(/\.?\s*\n|\. /u)[0]);
  }
}

function oneOf<T extends string>(name: string, value: string | undefined, known: readonly T[]): T | undefined {
  const found = known.find((each) => each === value);
  if (value !== undefined && found === undefined) throw new UsageError(`--${name} ${value}: use ${known.join(', ')}`);
  return found;
}
