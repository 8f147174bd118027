/**
 * With `strategy: auto`: what the first rounds of an attempt take, told once, when every worker that computes has measured enough of them. The control plane
 * picks by it: the coordinator goes on, and hears of another strategy by the end of its attempt. With `codec: auto` too, the codec is picked first, and rounds that
 * have it are measured.
 */
import { STRATEGY_MEASURED, type WorkerPace } from '@paceline/protocol';
import { counted } from '../words.js';
import { isEnough, type CodecPicking } from './codec-picking.js';
import type { Journal } from './journal.js';
import type { CoordinatedMember } from './membership.js';

/** What is measured of a run: its vector, and the servers that it lies on. */
export interface MeasuredRun {
  readonly denseBytes: number;
  readonly servers: number;
}

export class ExchangeMeasuring {
  private readonly paces = new Map<string, WorkerPace>();
  private isTold = false;

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

  committed(members: readonly CoordinatedMember[]): void {
    if (!this.run || this.isTold || this.codec.isOpen) return;
    const { change } = this.codec;
    const computing = members.filter(({ replicas }) => replicas.length > 0);
    const paces = computing
      .flatMap(({ id }) => this.paces.get(id) ?? [])
      .filter((pace) => isEnough(pace) && pace.fromRound === change?.fromRound);
    if (paces.length === 0 || paces.length < computing.length) return;
    this.isTold = true;
    const all = (of: (pace: WorkerPace) => number): number[] => paces.map(of);
    const [stepMs, waitMs] = [Math.max(...all((pace) => pace.stepMs)), Math.min(...all((pace) => pace.waitMs))];
    const latencyMs = Math.min(...all((pace) => pace.latencyMs));
    const [nodes, cores] = [Math.max(...all((pace) => pace.nodes)), Math.min(...all((pace) => pace.cores ?? 1))];
    const codec = change && { codec: { kind: change.kind, parameters: change.parameters } };
    this.journal.append({
      kind: 'event',
      type: STRATEGY_MEASURED,
      message: `${counted(paces.length, 'worker')} measured the first rounds for strategy auto: ${Math.round(stepMs)} ms step, ${Math.round(waitMs)} ms exchange`,
      data: {
        stepMs,
        waitMs,
        latencyMs,
        nodes,
        workers: paces.length,
        cores,
        denseBytes: this.run.denseBytes,
        servers: this.run.servers,
        ...codec,
      },
    });
  }
}
