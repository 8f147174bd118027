/**
 * Virtual time: a queue of events in order of (time, insertion), and nothing else that moves. No real timer, socket or file is
 * involved, so that a seed gives the same run to the last bit, on any machine at any load.
 *
 *   event ──> the machines react; what they want `soon` runs before the next event ──> microtasks drain ──> `afterEvent` checks
 *
 * Promises inside the machines (a connection that is being opened, a file that is being written) are settled by events alone;
 * microtasks are drained between two events whenever one may wait.
 */
import { Random } from './random.js';

export interface ScheduledEvent {
  readonly atMs: number;
  readonly order: number;
  readonly label: string;
  act: (() => void) | undefined;
}

export class World {
  nowMs = 0;
  eventCount = 0;
  readonly random: Random;
  /** Rolling hash of everything that has happened: two runs of one seed end with the same. */
  traceHash = 0;
  /** The newest events, for the report of a failing seed. */
  readonly recent: string[] = [];
  /** Set by whatever settled a promise. */
  microtasksWait = false;
  /** Called after every event. */
  afterEvent: () => void = () => undefined;
  private readonly heap: ScheduledEvent[] = [];
  private readonly soonQueue: (() => void)[] = [];
  private order = 0;
  private stopped = false;

  constructor(seed: number) {
    this.random = new Random(seed);
  }

  schedule(delayMs: number, label: string, act: () => void): ScheduledEvent {
    const event: ScheduledEvent = { atMs: this.nowMs + Math.max(0, delayMs), order: this.order++, label, act };
    this.push(event);
    return event;
  }

  /** Before the next event. */
  soon(act: () => void): void {
    this.soonQueue.push(act);
  }

  stop(): void {
    this.stopped = true;
  }

  /** Adds to the trace what the hash should tell apart. */
  note(label: string, detail = 0): void {
    let hash = Math.imul(this.traceHash ^ detail, 0x9e3779b1);
    for (let i = 0; i < label.length; i++) hash = Math.imul(hash ^ label.charCodeAt(i), 0x01000193);
    this.traceHash = (hash ^ (hash >>> 15)) >>> 0;
  }

  /** Runs until `stop`, an empty queue, or virtual time `untilMs`. */
  async run(untilMs: number): Promise<void> {
    while (!this.stopped) {
      const event = this.heap[0];
      if (!event || event.atMs > untilMs) return;
      this.pop();
      if (!event.act) continue;
      this.nowMs = event.atMs;
      this.eventCount++;
      this.note(event.label, Math.round(event.atMs * 1000));
      if (this.recent.push(`${event.atMs.toFixed(3)} ${event.label}`) > 400) this.recent.splice(0, 200);
      event.act();
      this.drainSoon();
      while (this.microtasksWait) {
        this.microtasksWait = false;
        await new Promise((resolve) => setImmediate(resolve));
        this.drainSoon();
      }
      this.afterEvent();
    }
  }

  private drainSoon(): void {
    for (let i = 0; i < this.soonQueue.length; i++) this.soonQueue[i]!();
    this.soonQueue.length = 0;
  }

  private push(event: ScheduledEvent): void {
    const { heap } = this;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  private pop(): void {
    const { heap } = this;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(a: ScheduledEvent, b: ScheduledEvent): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
