/**
 * How the rounds of a worker pass, for `codec: auto` and `strategy: auto`:
 *
 *   parameters are here ── step ──> its last gradient is computed ── wait: gradients out, update, parameters back ──> parameters are here
 *
 * The latency is that of the quickest answer to HELLO or to a heartbeat. The first round is left out: engines warm up in it. Of the others the least counts, which the load of the machine has disturbed the least.
 * Rounds with a codec that was picked are measured by themselves: the first of them is left out as well.
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
  private rounds = 0;
  private stepMs = Infinity;
  private waitMs = Infinity;
  private begunAtMs: number | undefined;
  private computedAtMs: number | undefined;
  private present = -1;
  private size = { nodes: 0, replicas: 0 };
  private isWarm = false;
  private fromRound: number | undefined;
  private asked = 0;
  private askedAtMs = 0;
  private echoMs = Infinity;

  constructor(private readonly clock: PaceClock) {}

  /**
   * The parameters of the round are here, and it is computed.
   *
   * @param fromRound the first round with the codec that was picked, from that round on
   */
  begins(round: number, fromRound?: number): void {
    if (round === this.present) return;
    if (fromRound !== this.fromRound) this.beginAnew(fromRound);
    const nowMs = this.clock.now();
    const [begunMs, computedMs] = [this.begunAtMs, this.computedAtMs];
    if (begunMs !== undefined && computedMs !== undefined && round === this.present + 1) {
      if (this.isWarm) {
        this.stepMs = Math.min(this.stepMs, computedMs - begunMs);
        this.waitMs = Math.min(this.waitMs, nowMs - computedMs);
        this.rounds++;
      }
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
    if (this.rounds === 0 || latencyMs === undefined) return undefined;
    const { rounds, stepMs, waitMs, size, fromRound } = this;
    const { cores } = this.clock;
    const also = { ...(cores === undefined ? {} : { cores }), ...(fromRound === undefined ? {} : { fromRound }) };
    return { rounds, stepMs, waitMs, latencyMs, ...size, ...also };
  }
}
