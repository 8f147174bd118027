/**
 * Where the time of rounds goes, as spans of one thread: what it did from when to when. Off unless somebody asks (`paceline trace`), and then
 * bounded: the newest spans replace the oldest.
 *
 * A span begins with `now()`, which is 0 while nothing is recorded, and ends with `add`. Tracks are what lies below each other in the picture: `main`, and one for each
 * direction of a connection, because bytes travel while the thread does something else. Spans of one track nest. A thread that works for several runs records one of them.
 */
export const SPAN_NAMES = [
  'round',
  'wait',
  'step',
  'take rows',
  'load parameters',
  'compute',
  'take gradient',
  'encode',
  'send',
  'receive',
  'add',
  'update',
  'publish',
  'commit',
  'wait for stage',
  'wait for threads',
] as const;
export type SpanName = (typeof SPAN_NAMES)[number];

/** Name, track, start and length in µs, round; name and track as indices. Start counts from `startUs` of the recording. */
export type Span = readonly [name: number, track: number, startUs: number, lengthUs: number, round: number];

export interface Recording {
  readonly tracks: readonly string[];
  readonly spans: readonly Span[];
  /** Spans that newer ones have replaced. */
  readonly lost: number;
  /** When it began: by the monotonic clock of the machine, which all its processes and threads share, and by the wall clock. */
  readonly startUs: number;
  readonly wallStartUs: number;
}

/** Of one thread. */
export const MAX_SPANS = 6_000;
const FIELDS = 5;
const MAX_TRACKS = 256;

export class SpanRecorder {
  isOn = false;
  /** The run that the thread works for now, where it works for several: what sets it puts back what was there. */
  owner: unknown;
  /** Rounds that have ended since the start. */
  rounds = 0;
  private values = new Float64Array(0);
  private written = 0;
  private tracks: string[] = [];
  private startMs = 0;
  private clockUs = 0;
  private wallUs = 0;
  private round = -1;
  private roundMs = 0;
  private of: unknown;

  /** @param of the run that is recorded, where the process has several: nothing of the others is */
  start(of?: unknown): void {
    if (this.values.length === 0) this.values = new Float64Array(MAX_SPANS * FIELDS);
    Object.assign(this, { written: 0, rounds: 0, tracks: ['main'], round: -1, of });
    this.startMs = performance.now();
    this.clockUs = Number(process.hrtime.bigint() / 1000n);
    this.wallUs = Date.now() * 1000;
    this.isOn = true;
  }

  /** 0 while nothing is recorded. ms */
  now(): number {
    return this.isOn ? performance.now() : 0;
  }

  /**
   * What has begun at `startMs` is over.
   * @param track its name; `main` where it is left out
   * @param owner whose work it was
   */
  add(name: SpanName, startMs: number, track = 'main', round = this.round, owner = this.owner): void {
    if (!this.isOn || startMs < this.startMs || (this.of !== undefined && owner !== this.of)) return;
    const at = (this.written++ % MAX_SPANS) * FIELDS;
    this.values[at] = SPAN_NAMES.indexOf(name);
    this.values[at + 1] = this.trackOf(track);
    this.values[at + 2] = startMs;
    this.values[at + 3] = performance.now() - startMs;
    this.values[at + 4] = round;
  }

  /** The run is in this round now. */
  mark(round: number, of?: unknown): void {
    if (!this.isOn || round === this.round || of !== this.of) return;
    if (this.round >= 0) {
      this.add('round', this.roundMs, 'rounds', this.round, of);
      this.rounds++;
    }
    this.round = round;
    this.roundMs = performance.now();
  }

  /** Ends the recording. */
  stop(): Recording {
    this.isOn = false;
    const count = Math.min(this.written, MAX_SPANS);
    const spans = Array.from({ length: count }, (_, i): Span => {
      const [name, track, startMs, lengthMs, round] = this.values.subarray(i * FIELDS, (i + 1) * FIELDS);
      return [name!, track!, Math.round((startMs! - this.startMs) * 1000), Math.round(lengthMs! * 1000), round!];
    });
    spans.sort((a, b) => a[2] - b[2] || b[3] - a[3]);
    return { tracks: this.tracks, spans, lost: this.written - count, startUs: this.clockUs, wallStartUs: this.wallUs };
  }

  private trackOf(track: string): number {
    const found = this.tracks.indexOf(track);
    if (found >= 0 || this.tracks.length === MAX_TRACKS) return Math.max(found, 0);
    return this.tracks.push(track) - 1;
  }
}

/** Of this thread. */
export const spans = new SpanRecorder();
