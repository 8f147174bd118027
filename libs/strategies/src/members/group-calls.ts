/**
 * What the thread of the group does for functions that run in replicas: it lets all processes decide, where the replicas of this one have come together,
 * whether they go on, and adds their sums up (threads/meeting.ts). And it gives values of replicas to all processes, for `reduce` and `gather`.
 */
import { AllReducePlan, replicasOf, Spread, type Called, type Failure, type Membership } from '@paceline/collectives';
import { decide, ENDED, FAILED_POINT, unequalPoints, type CommonPoint } from '../threads/meeting.js';
import type { MeetingMemory, Met, Share } from '../threads/protocol.js';
import type { ReplicaArray } from '../replicas/per-replica.js';

interface Place {
  readonly members: number;
  readonly self: number;
  readonly share: Share;
}

/** What a process says of a meeting. */
interface Said {
  readonly point: CommonPoint;
  readonly fn: string;
}

export class GroupCalls {
  private readonly values: SharedArrayBuffer;
  private meetings = 0;

  constructor(
    private readonly place: Place,
    private readonly memory: MeetingMemory,
  ) {
    this.values = memory.values;
  }

  /**
   * One meeting.
   * @param failures of replicas of this process
   * @returns those of all processes, and whether the replicas go on: `decide` tells them
   */
  async meet(
    group: Pick<Membership, 'run'>,
    at: Met,
    failures: readonly Failure[],
  ): Promise<{ failures: readonly Failure[]; goesOn: boolean }> {
    const { share } = this.place;
    const what = `meeting ${++this.meetings} of functions in replicas`;
    const own = at.reason === undefined ? failures : [...failures, { replica: share.from, message: at.reason }];
    const called = await group.run({
      what,
      values: encoded({ point: [at.kind, at.length, at.form], fn: at.fn } satisfies Said),
      failures: own,
      operations: [],
    });
    const all = called.failures.length > 0 ? called.failures : this.unequal(called);
    if (all.length === 0 && at.kind !== ENDED && at.kind !== FAILED_POINT) await this.add(group, at.length, what);
    return { failures: all, goesOn: all.length === 0 && at.kind !== FAILED_POINT };
  }

  /** The replicas that wait go on, or end. What the main thread reads once they have ended has to be said before. */
  decide(goesOn: boolean): void {
    const { from, to } = this.place.share;
    decide(this.memory, to - from, goesOn);
  }

  private unequal({ values }: Called): Failure[] {
    const said = values.map((value) => JSON.parse(Buffer.from(value).toString()) as Said);
    const { members, share } = this.place;
    const firsts = said.map((_, member) => replicasOf(share.replicas, members, member).from);
    const [{ fn }] = said as [Said];
    const other = said.findIndex((each) => each.fn !== fn);
    if (other < 0)
      return unequalPoints(
        said.map(({ point }) => point),
        firsts,
      );
    const told = `replica ${firsts[0]} is in ${fn}, and replica ${firsts[other]} in ${said[other]!.fn}`;
    return [{ replica: firsts[other]!, message: `${told}: every process must call the same functions, in the same order` }];
  }

  private async add(group: Pick<Membership, 'run'>, length: number, what: string): Promise<void> {
    const { share, members, self } = this.place;
    const place = (index: number): Float32Array => new Float32Array(this.values, index * length * 4, length);
    // Copies: what grows cannot be written to a socket.
    const nodes = share.nodes.map(({ lo }) => place(lo - share.from + 1).slice());
    const [result] = nodes as [Float32Array];
    const plan = new AllReducePlan({ members, self, replicas: share.replicas, length });
    await group.run({ what: `the sums of ${what}`, operations: [plan.reduce(nodes, result)] });
    place(0).set(result);
  }
}

const encoded = (value: unknown): Uint8Array => new Uint8Array(Buffer.from(JSON.stringify(value)));

/** The values of the replicas of all processes, in their order. */
export async function shared(
  group: Pick<Membership, 'run'>,
  { members, self }: Place,
  what: string,
  own: readonly ReplicaArray[],
): Promise<ReplicaArray[]> {
  const { values } = await group.run({ what, values: encoded(own.map(({ shape }) => shape)), operations: [] });
  const shapes = values.map((value) => JSON.parse(Buffer.from(value).toString()) as number[][]);
  const arrays = shapes.map((list, member) =>
    list.map((shape, i) => ({
      shape,
      values: member === self ? own[i]!.values : new Float32Array(shape.reduce((product, size) => product * size, 1)),
    })),
  );
  const parts = arrays.flatMap((list, member) => list.map((array) => ({ member, values: array.values })));
  await group.run({ what: `the values of ${what}`, operations: [new Spread(members, self, parts)] });
  return arrays.flat();
}
