/**
 * How the rounds of a worker pass, for `codec: auto` and `strategy: auto`:
 *
 *   parameters are here ── step ──> its last gradient is computed ── wait: gradients out, update, parameters back ──> parameters are here
 *
 * The latency is that of the quickest answer to HELLO or to a heartbeat. The step of the first round is left out: engines warm up in it. Of the others the least counts, which the load of the machine has disturbed the least.
 * Rounds with a codec that was picked are measured by themselves: the step of the first of them is left out as well.
 *
 * The first generation says how fast the link is before any gradient leaves. With the wait of the first round these are two exchanges, and the second step makes
 * a pace of them: over a slow link each further round would be a large part of what a better way of exchange saves.
 */
import type { WorkerPace } from '@paceline/protocol';

export interface PaceClock {
  now(): number;
  /** From HELLO to WELCOME; undefined before it is known. */
  latencyMs(): number | undefined;
  /** That this worker may use. */
  readonly cores?: number | undefined;
}

export class RoundPace {
  /** Rounds whose exchange was measured. */
  private rounds = 0;
  private stepMs = Infinity;
  private waitMs = Infinity;
  private begunAtMs: number | undefined;
  private computedAtMs: number | undefined;
  private present = -1;
  private size = { nodes: 0, replicas: 0 };
  private isWarm = false;
  private fromRound: number | undefined;
  /** The first generation: when its first chunk was there, and what has come after that. */
  private arrival: { readonly sinceMs: number; readonly firstBytes: number; untilMs: number; laterBytes: number } | undefined;
  private asked = 0;
  private askedAtMs = 0;
  private echoMs = Infinity;

  constructor(private readonly clock: PaceClock) {}

  /** A chunk of parameters is here, which took so many bytes on the link. */
  arrived(bytes: number): void {
    if (this.present >= 0) return;
    const nowMs = this.clock.now();
    const { arrival } = this;
    this.arrival = arrival
      ? { ...arrival, untilMs: nowMs, laterBytes: arrival.laterBytes + bytes }
      : { sinceMs: nowMs, firstBytes: bytes, untilMs: nowMs, laterBytes: 0 };
  }

  /**
   * The parameters of the round are here, and it is computed.
   *
   * @param fromRound the first round with the codec that was picked, from that round on
   */
  begins(round: number, fromRound?: number): void {
    if (round === this.present) return;
    if (fromRound !== this.fromRound) this.beginAnew(fromRound);
    const nowMs = this.clock.now();
    if (this.begunAtMs !== undefined && this.computedAtMs !== undefined && round === this.present + 1) {
      if (this.isWarm) this.stepMs = Math.min(this.stepMs, this.computedAtMs - this.begunAtMs);
      this.waitMs = Math.min(this.waitMs, nowMs - this.computedAtMs);
      this.rounds++;
      this.isWarm = true;
    }
    this.present = round;
    this.begunAtMs = nowMs;
    this.computedAtMs = undefined;
  }

  private beginAnew(fromRound: number | undefined): void {
    this.fromRound = fromRound;
    this.rounds = 0;
    this.stepMs = this.waitMs = Infinity;
    this.begunAtMs = undefined;
    this.isWarm = false;
  }

  /** All that it was to compute of the round is there. */
  computed(nodes: number, replicas: number): void {
    this.size = { nodes, replicas };
    this.computedAtMs = this.clock.now();
  }

  /** A heartbeat goes to the coordinator, which answers it with this number. HELLO alone may be answered late, by a process that is just beginning. */
  asks(): number {
    this.askedAtMs = this.clock.now();
    return ++this.asked;
  }

  answered(echo: number): void {
    if (echo === this.asked) this.echoMs = Math.min(this.echoMs, this.clock.now() - this.askedAtMs);
  }

  get pace(): WorkerPace | undefined {
    const helloMs = this.clock.latencyMs();
    const latencyMs = helloMs && Math.min(helloMs, this.echoMs);
    if (latencyMs === undefined) return undefined;
    const measured = this.stepMs < Infinity ? { rounds: this.rounds, stepMs: this.stepMs, waitMs: this.waitMs } : this.early(latencyMs);
    if (!measured) return undefined;
    const { size, fromRound } = this;
    const { cores } = this.clock;
    const also = { ...(cores === undefined ? {} : { cores }), ...(fromRound === undefined ? {} : { fromRound }) };
    return { ...measured, latencyMs, ...size, ...also };
  }

  /** When the second step is over: the shorter of the first round's exchange, and of one at the rate of the first generation. */
  private early(latencyMs: number): Pick<WorkerPace, 'rounds' | 'stepMs' | 'waitMs'> | undefined {
    const { arrival, begunAtMs, computedAtMs } = this;
    if (this.fromRound !== undefined || !this.isWarm || begunAtMs === undefined || computedAtMs === undefined || !arrival) return undefined;
    const { sinceMs, firstBytes, untilMs, laterBytes } = arrival;
    // How long the first chunk took is not known. With most of the bytes in it there is no rate.
    if (laterBytes < firstBytes) return undefined;
    const wayMs = ((untilMs - sinceMs) * (firstBytes + laterBytes)) / laterBytes;
    const waitMs = Math.min(this.waitMs, latencyMs + (1 + this.size.nodes) * wayMs);
    return { rounds: this.rounds + 1, stepMs: computedAtMs - begunAtMs, waitMs };
  }
}
