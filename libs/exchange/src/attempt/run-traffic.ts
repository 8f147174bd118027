/**
 * The bytes of an attempt on the sockets between its workers and servers, as the heartbeats of the workers tell them. Each says what it has counted since
 * it took its seat; a number that is lower than the one before belongs to another seat.
 */
import type { TrafficBytes } from '@paceline/protocol';

/** Workers that are told one by one; the others are only in the sum. */
const MOST_TOLD = 256;
/** Twice as many as can have a seat: of more, the one that was heard longest ago is gone for good, and only in the sum. */
const MOST_WORKERS = 2048;

const NOTHING: TrafficBytes = { toServersBytes: 0, toWorkersBytes: 0, denseToServersBytes: 0, denseToWorkersBytes: 0 };

const sumOf = (a: TrafficBytes, b: TrafficBytes): TrafficBytes => ({
  toServersBytes: a.toServersBytes + b.toServersBytes,
  toWorkersBytes: a.toWorkersBytes + b.toWorkersBytes,
  denseToServersBytes: a.denseToServersBytes + b.denseToServersBytes,
  denseToWorkersBytes: a.denseToWorkersBytes + b.denseToWorkersBytes,
});

export interface TrafficReport extends TrafficBytes {
  readonly workers: (TrafficBytes & { readonly workerId: string })[];
}

export class RunTraffic {
  private readonly workers = new Map<string, { readonly ended: TrafficBytes; readonly present: TrafficBytes }>();
  private others = NOTHING;

  /** What a worker has counted in its present seat. */
  heard(workerId: string, counts: TrafficBytes): void {
    const { ended, present } = this.workers.get(workerId) ?? { ended: NOTHING, present: NOTHING };
    const isNewSeat = counts.toServersBytes < present.toServersBytes || counts.toWorkersBytes < present.toWorkersBytes;
    this.workers.delete(workerId); // it goes to the end: who is heard is never the oldest
    this.workers.set(workerId, { ended: isNewSeat ? sumOf(ended, present) : ended, present: counts });
    if (this.workers.size <= MOST_WORKERS) return;
    const [oldest, { ended: past, present: last }] = this.workers.entries().next().value!;
    this.workers.delete(oldest);
    this.others = sumOf(this.others, sumOf(past, last));
  }

  report(): TrafficReport {
    const workers = [...this.workers].map(([workerId, { ended, present }]) => Object.assign({ workerId }, sumOf(ended, present)));
    return Object.assign(workers.reduce<TrafficBytes>(sumOf, this.others), { workers: workers.slice(-MOST_TOLD) });
  }
}
