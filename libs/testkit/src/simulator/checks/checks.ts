/** What is asserted at every step, I1–I10 of the invariants, and how a violation ends a seed. */
import type { World } from '../world/world.js';

export type Invariant = 'I1' | 'I2' | 'I3' | 'I4' | 'I5' | 'I6' | 'I7' | 'I8' | 'I9' | 'I10' | 'crash' | 'outbox' | 'refusal' | 'liveness';

export const INVARIANTS: Readonly<Record<Invariant, string>> = {
  I1: 'the round never goes back except by a logged restore',
  I2: 'each (round, replica) gradient is applied at most once in the lineage of the current weights, and a round is committed only when all of it is applied',
  I3: 'staleness stays within its bound',
  I4: 'each example is counted once per epoch or logged as dropped',
  I5: 'a checkpoint is visible only if it is complete and its hashes hold',
  I6: 'run status follows its table',
  I7: 'an old fence writes nothing',
  I8: 'synchronous weights are bitwise equal under any timing',
  I9: 'no run stays unowned',
  I10: 'memory and queues stay bounded, and all of it is given back',
  crash: 'no machine breaks an invariant of its own (an error that is no protocol error)',
  outbox: 'a job that was decided is enqueued once, and again only when Redis has lost it',
  refusal: 'honest peers are not refused for what they send',
  liveness: 'when faults have stopped, the run ends within its deadline',
};

/** A state table of a machine, and how often each of its rows was taken. */
export interface TakenRows {
  readonly name: string;
  readonly rows: object;
  readonly taken: ReadonlyMap<PropertyKey, number>;
}

export interface Violation {
  readonly invariant: Invariant;
  readonly message: string;
  readonly atMs: number;
}

export class Checks {
  violation: Violation | undefined;

  constructor(private readonly world: World) {}

  /** The first violation ends the seed: what follows it is its consequence. */
  fail(invariant: Invariant, message: string): void {
    if (this.violation) return;
    this.violation = { invariant, message, atMs: this.world.nowMs };
    this.world.stop();
  }

  expect(holds: boolean, invariant: Invariant, message: () => string): void {
    if (!holds) this.fail(invariant, message());
  }
}
