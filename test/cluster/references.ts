/**
 * What the independent reference reaches, computed once for all tests of a process: how many servers and workers a run has does not change its
 * weights, and a shorter run is the beginning of a longer one. Ask for the longest first.
 */
import { parseRunSpec, type RunSpec, type RunSpecInput } from '@paceline/spec';
import { trainReference } from '../numerics/reference.js';

/** By what the weights depend on but the number of rounds: the hash of the weights after each round. */
const trajectories = new Map<string, Promise<readonly string[]>>();
let last: Promise<unknown> = Promise.resolve();

function keyOf({ strategy, length: _, ...rest }: RunSpec): string {
  const local = strategy.kind === 'local-update' ? { ...strategy, servers: 1, startWorkers: 1, workers: 1, threads: 1 } : undefined;
  return JSON.stringify([rest, strategy.accumulate, local]);
}

/** Hash of the weights that the independent reference reaches. It computes in this thread: ask before the clock of a fault runs. */
export async function reference(input: RunSpecInput): Promise<string> {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  if (!('rounds' in spec.length)) throw new Error('the reference is asked for a number of rounds');
  const { rounds } = spec.length;
  const key = keyOf(spec);
  const known = await trajectories.get(key);
  if (known && known.length >= rounds) return known[rounds - 1]!;
  // A thread has one engine at a time; who asked hears of a failure.
  const next = last.then(() => trainReference(spec)).then(({ sha256AfterRounds }) => sha256AfterRounds);
  trajectories.set(key, next);
  last = next.catch(() => undefined);
  return (await next)[rounds - 1]!;
}
