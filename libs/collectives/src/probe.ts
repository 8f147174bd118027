/**
 * Which topology is the fastest for a vector: all-reduces of two lengths are timed when a group has come together, and a line through both gives the time
 * of others. All members get the times of the slowest one, so all choose the same.
 */
import type { Clock } from '@paceline/exchange';
import { AllReducePlan } from './all-reduce.js';
import type { Group } from './group.js';
import { nodesOf } from './parts.js';
import { keepsOrder, type Topology } from './routes.js';

export interface Timing {
  readonly topology: Topology;
  /** Bytes of the vector. */
  readonly bytes: number;
  /** The time of the slowest member, the least of the repetitions. */
  readonly durationMs: number;
}

export interface Choice {
  readonly topology: Topology;
  /** Whether the bits of its sums depend on the number of replicas alone. */
  readonly keepsOrder: boolean;
  /** For the vector in question, by what was measured; the chosen one too. */
  readonly estimates: readonly { readonly topology: Topology; readonly durationMs: number }[];
}

const LENGTHS = [1 << 10, 1 << 19] as const;
const REPETITIONS = 3;
/** A topology whose bits depend on the members has to be so much faster than those whose bits do not. */
const LEAST_GAIN = 0.9;

/** What may be better than another one somewhere, for members on these hosts. */
export function candidates(hosts: readonly string[]): Topology[] {
  const count = new Set(hosts).size;
  return [
    'direct',
    'tree',
    ...(hosts.length > 2 ? (['ring'] as const) : []),
    ...(count > 1 && count < hosts.length ? (['hierarchical'] as const) : []),
  ];
}

/**
 * Times all candidates. All members of the group call it at the same point.
 * @param replicas of all members: where those of a member are several nodes of the reduction tree, it sends each by itself on some of the ways
 * @throws MemberLostError
 */
export async function probe(group: Group, self: number, hosts: readonly string[], replicas: number, clock: Clock): Promise<Timing[]> {
  const timings: Timing[] = [];
  const members = hosts.length;
  for (const topology of candidates(hosts))
    for (const length of LENGTHS) {
      const plan = new AllReducePlan({ members, self, replicas, length, topology, hosts });
      const vectors = nodesOf(replicas, members, self).map(() => new Float32Array(length));
      let leastMs = Infinity;
      for (let i = 0; i < REPETITIONS; i++) {
        const sinceMs = clock.now();
        await group.run({ what: `the probe of ${topology}, ${length * 4} bytes`, operations: [plan.reduce(vectors, vectors[0]!)] });
        leastMs = Math.min(leastMs, clock.now() - sinceMs);
      }
      timings.push({ topology, bytes: length * 4, durationMs: leastMs });
    }
  const own = Float64Array.from(timings, ({ durationMs }) => durationMs);
  const { values } = await group.run({ what: 'the times of the probe', values: new Uint8Array(own.buffer), operations: [] });
  const all = values.map((bytes) => new Float64Array(bytes.slice().buffer));
  return timings.map((timing, i) => ({ ...timing, durationMs: Math.max(...all.map((times) => times[i]!)) }));
}

/**
 * @param bytes of the vector as it travels
 * @param isPacked sums are rounded on each hop: no way keeps bits then, and a ring rounds too often
 */
export function choose(timings: readonly Timing[], bytes: number, hosts: readonly string[], replicas: number, isPacked = false): Choice {
  const topologies = [...new Set(timings.map(({ topology }) => topology))].filter((topology) => !(isPacked && topology === 'ring'));
  const estimates = topologies.map((topology) => ({ topology, durationMs: estimate(timings, topology, bytes) }));
  const keeping = new Set(isPacked ? [] : topologies.filter((topology) => keepsOrder(topology, hosts, replicas)));
  const cost = ({ topology, durationMs }: (typeof estimates)[number]): number => (keeping.has(topology) ? LEAST_GAIN : 1) * durationMs;
  const [best] = [...estimates].sort((a, b) => cost(a) - cost(b)) as [(typeof estimates)[number]];
  return { topology: best.topology, keepsOrder: keeping.has(best.topology), estimates };
}

/** A line through the shortest and the longest vector that were measured; never faster than either of them says. */
function estimate(timings: readonly Timing[], topology: Topology, bytes: number): number {
  const own = timings.filter((timing) => timing.topology === topology).sort((a, b) => a.bytes - b.bytes);
  const [short, long] = [own[0]!, own.at(-1)!];
  const perByte = Math.max(0, long.durationMs - short.durationMs) / Math.max(1, long.bytes - short.bytes);
  return short.durationMs + perByte * Math.max(0, bytes - short.bytes);
}
