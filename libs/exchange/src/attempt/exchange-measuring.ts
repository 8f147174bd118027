/**
 * With `strategy: auto`: what the first rounds of an attempt take, told when every worker that computes has measured enough of them. The control plane
 * picks by it: the coordinator goes on, and hears of another strategy by the end of its attempt. With `codec: auto` too, the codec is picked first, and rounds that
 * have it are measured; where local updates may be picked, which have a codec of their own, the rounds before are told too.
 */
import { STRATEGY_MEASURED, type WorkerPace } from '@paceline/protocol';
import { counted } from '../words.js';
import { isEnough, type CodecPicking } from './codec-picking.js';
import type { Journal } from './journal.js';
import type { CoordinatedMember } from './membership.js';

/** Each round before the codec costs what local updates would save, and only a wide margin decides by them: rounds of so many milliseconds together do. */
const BEFORE_CODEC_MS = 500;

/** What is measured of a run: its vector, and the servers that it lies on. */
export interface MeasuredRun {
  readonly denseBytes: number;
  readonly servers: number;
  /** Whether rounds may decide that have no codec yet. */
  readonly decidesBeforeCodec?: boolean;
}

export class ExchangeMeasuring {
  private readonly paces = new Map<string, WorkerPace>();
  private isTold = false;
  /** Rounds that were told before a codec was picked: they are told again when they are twice as many. */
  private toldBefore = 0;

  /**
   * @param run undefined where the strategy is named
   * @param codec of the same attempt
   */
  constructor(
    private readonly run: MeasuredRun | undefined,
    private readonly journal: Pick<Journal, 'append'>,
    private readonly codec: Pick<CodecPicking, 'isOpen' | 'change'>,
  ) {}

  heard(workerId: string, pace: WorkerPace): void {
    if (this.run && !this.isTold) this.paces.set(workerId, pace);
  }

  /** A round is committed, or a worker has told its pace. */
  tellIfEnough(members: readonly CoordinatedMember[]): void {
    if (!this.run || this.isTold) return;
    const { change, isOpen } = this.codec;
    if (this.run.decidesBeforeCodec && (isOpen || change)) {
      const paces = this.enough(members, undefined, BEFORE_CODEC_MS);
      const rounds = Math.min(...(paces ?? []).map((pace) => pace.rounds));
      if (paces && rounds >= 2 * this.toldBefore) {
        this.toldBefore = rounds;
        this.tell(this.run, paces, { isBeforeCodec: true });
      }
    }
    if (isOpen) return;
    const paces = this.enough(members, change?.fromRound);
    if (!paces) return;
    this.isTold = true;
    this.tell(this.run, paces, change ? { codec: { kind: change.kind, parameters: change.parameters } } : {});
  }

  /** What all that compute have measured of rounds with the codec of this change, once it is enough. */
  private enough(members: readonly CoordinatedMember[], fromRound: number | undefined, measuredMs?: number): WorkerPace[] | undefined {
    const computing = members.filter(({ replicas }) => replicas.length > 0);
    const paces = computing
      .flatMap(({ id }) => this.paces.get(id) ?? [])
      .filter((pace) => isEnough(pace, measuredMs) && pace.fromRound === fromRound);
    return paces.length > 0 && paces.length === computing.length ? paces : undefined;
  }

  private tell(run: MeasuredRun, paces: readonly WorkerPace[], which: object): void {
    const all = (of: (pace: WorkerPace) => number): number[] => paces.map(of);
    const [stepMs, waitMs] = [Math.max(...all((pace) => pace.stepMs)), Math.min(...all((pace) => pace.waitMs))];
    const latencyMs = Math.min(...all((pace) => pace.latencyMs));
    const [nodes, cores] = [Math.max(...all((pace) => pace.nodes)), Math.min(...all((pace) => pace.cores ?? 1))];
    this.journal.append({
      kind: 'event',
      type: STRATEGY_MEASURED,
      message: `${counted(paces.length, 'worker')} measured the first rounds for strategy auto: ${Math.round(stepMs)} ms step, ${Math.round(waitMs)} ms exchange`,
      data: Object.assign(
        { stepMs, waitMs, latencyMs, nodes, workers: paces.length, cores, denseBytes: run.denseBytes, servers: run.servers },
        which,
      ),
    });
  }
}
