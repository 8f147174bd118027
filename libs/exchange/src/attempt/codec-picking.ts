/**
 * With `codec: auto`: the coordinator picks the codec of the run, once.
 *
 *   rounds without a codec ── every worker has told its pace ──> picked at COMMIT(k) ── from round k+2 on ──> gradients and parameters in that codec
 *
 * COMMIT(k) and COMMIT(k+1), and every VIEW, say which. A worker begins round k+2 after COMMIT(k+1), and a shard makes generation k+2 after COMMIT(k), so
 * nobody encodes in two ways. The pick is an event of the run: later attempts are given it and measure nothing.
 */
import { CODEC_PICKED, type CodecChoice, type CodecSwitch, type WorkerPace } from '@paceline/protocol';
import type { Journal } from './journal.js';
import type { CoordinatedMember } from './membership.js';

export interface CodecPicker {
  /** What an earlier attempt of the run has picked. */
  readonly picked?: CodecChoice | undefined;
  /** @param paces of all workers that compute */
  pick(paces: readonly WorkerPace[]): Omit<CodecChoice, 'fromRound'>;
}

/** So many exchanges are measured, eight beside that of the first round, or rounds of so many milliseconds together, but two at least. */
const ROUNDS = 9;
const MEASURED_MS = 2000;
const FEWEST_ROUNDS = 2;

/** @param measuredMs of fewer rounds together */
export const isEnough = ({ rounds, stepMs, waitMs }: WorkerPace, measuredMs = MEASURED_MS): boolean =>
  rounds >= ROUNDS || (rounds >= FEWEST_ROUNDS && rounds * (stepMs + waitMs) >= measuredMs);

const isNone = ({ kind, parameters }: Pick<CodecChoice, 'kind' | 'parameters'>): boolean => kind === 'none' && parameters === 'float32';

export class CodecPicking {
  private readonly paces = new Map<string, WorkerPace>();
  private choice: CodecChoice | undefined;

  constructor(
    private readonly picker: CodecPicker | undefined,
    private readonly journal: Pick<Journal, 'append'>,
  ) {
    this.choice = picker?.picked;
  }

  /** For messages; undefined where gradients travel as without a codec, all the time. */
  get change(): CodecSwitch | undefined {
    if (!this.choice || isNone(this.choice)) return undefined;
    const { kind, parameters, fromRound } = this.choice;
    return { kind, parameters, fromRound };
  }

  /** It is still to be picked. */
  get isOpen(): boolean {
    return this.picker !== undefined && !this.choice;
  }

  heard(workerId: string, pace: WorkerPace): void {
    if (this.isOpen) this.paces.set(workerId, pace);
  }

  /** @param round that is committed @returns what its COMMIT has to say */
  committed(round: number, members: readonly CoordinatedMember[]): CodecSwitch | undefined {
    if (this.isOpen) this.tryPick(round, members);
    const { change } = this;
    return change && round < change.fromRound && round >= change.fromRound - 2 ? change : undefined;
  }

  private tryPick(round: number, members: readonly CoordinatedMember[]): void {
    const computing = members.filter(({ replicas }) => replicas.length > 0);
    const paces = computing.map(({ id }) => this.paces.get(id));
    const told = paces.filter((pace) => pace !== undefined && isEnough(pace)) as WorkerPace[];
    if (told.length === 0 || told.length < computing.length) return;
    this.choice = { ...this.picker!.pick(told), fromRound: round + 2 };
    const { kind, parameters, why } = this.choice;
    const what = isNone(this.choice)
      ? 'none'
      : `${kind} for gradients, ${parameters} for parameters, from round ${this.choice.fromRound} on`;
    this.journal.append({
      kind: 'event',
      type: CODEC_PICKED,
      message: `codec auto has picked ${what}: ${why}`.slice(0, 2000),
      data: this.choice,
    });
  }
}
