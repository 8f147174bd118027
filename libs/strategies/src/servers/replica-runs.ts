/**
 * `strategy.run` over workers, as the coordinator has it: all call the function in their replicas, and say when these have come together. Then the coordinator
 * decides, as a group of processes does (members/group-calls.ts), whether they go on, and adds their sums up.
 */
import type { Content, Received } from '@paceline/collectives';
import { split } from '@paceline/learning';
import type { NamedFunction } from '../replicas/replica-function.js';
import { ENDED, FAILED_POINT, unequalPoints } from '../threads/meeting.js';
import type { Share } from '../threads/protocol.js';
import { bytesOf, type Reached, type StepFailure } from './messages.js';

/** The same of all workers. */
type AskAll = (name: string, content: (worker: number) => Content) => Promise<Received[]>;

/** What the workers gave back, each packed for its replicas. */
export interface RunEnds {
  readonly results: readonly Uint8Array[];
  readonly failures: readonly StepFailure[];
}

export async function runInReplicas(
  ask: AskAll,
  shares: readonly Share[],
  fn: NamedFunction,
  args: readonly Uint8Array[],
): Promise<RunEnds> {
  await ask('load', (worker) => ({ body: { ...fn, share: shares[worker] } }));
  let answers = await ask('run', (worker) => ({ body: fn, parts: [args[worker]!] }));
  const failures: StepFailure[] = [];
  for (;;) {
    const reached = answers.map(({ body }) => body as Reached);
    failures.push(...reached.flatMap((each) => each.failures));
    if (reached.every(({ isOver }) => isOver)) return { results: answers.map(({ parts }) => parts[0]!), failures };
    const points = reached.map(({ point }) => point);
    if (failures.length === 0)
      failures.push(
        ...unequalPoints(
          points,
          shares.map(({ from }) => from),
        ),
      );
    const [kind] = points[0]!;
    const goesOn = failures.length === 0 && kind !== FAILED_POINT;
    const parts = goesOn && kind !== ENDED ? [bytesOf(sumOf(shares, answers))] : [];
    answers = await ask('meet', () => ({ body: { goesOn }, parts }));
  }
}

/** Over the reduction tree of all replicas, so that the bits are those of one process. */
function sumOf(shares: readonly Share[], answers: readonly Received[]): Float32Array {
  const nodes = new Map<string, Float32Array>();
  for (const [worker, { parts }] of answers.entries())
    for (const [i, { lo, hi }] of shares[worker]!.nodes.entries()) {
      const { buffer, byteOffset, byteLength } = parts[i]!;
      nodes.set(`${lo},${hi}`, new Float32Array(buffer as ArrayBuffer, byteOffset, byteLength / 4));
    }
  const sum = (lo: number, hi: number): Float32Array => {
    const known = nodes.get(`${lo},${hi}`);
    if (known) return known;
    const middle = split(lo, hi);
    const [into, from] = [sum(lo, middle), sum(middle, hi)];
    for (let i = 0; i < into.length; i++) into[i] = into[i]! + from[i]!;
    return into;
  };
  return sum(0, shares[0]!.replicas);
}
