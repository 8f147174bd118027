/**
 * Residuals that replicas have lost: what error feedback, dgc or power-sgd had kept of them is not where they are computed now. From there on the run has
 * other bits than an undisturbed one, so that is an event of it (docs/codecs.md). Where workers get differences of parameters, what they had of them is
 * not in a checkpoint either: an attempt that begins with one computes all replicas from the exact parameters.
 *
 * Each cause is told with the first round that it spoils, and again whenever its count has doubled: an attempt that loses residuals in every round writes
 * as many events as the count has binary digits. The end of training tells what is left.
 */
import { RESIDUAL_LOST, type MessageOf, type ResidualLossCause } from '@paceline/protocol';
import type { Journal } from '../attempt/journal.js';

type Loss = NonNullable<MessageOf<'contribution'>['lost']>;

const WHY: Readonly<Record<ResidualLossCause, string>> = {
  checkpoint: 'the attempt began with a checkpoint that does not have it',
  moved: 'the worker that computes them now has nothing of it',
  gap: 'the worker that computes them has not computed them in the round before',
};
/** Named in the event; the others are counted. */
const NAMED = 16;

interface Count {
  /** The first round that is spoiled. */
  readonly fromRound: number;
  replicas: number;
  told: number;
}

/** The round that was committed last. */
interface Newest {
  readonly round: number;
  /** Whether it is the last round of the attempt. */
  readonly isLast: boolean;
}

export class LostResiduals {
  /** Losses of the present round, by replica. */
  private readonly present = new Map<number, Loss>();
  private newest: Newest | undefined;
  /** Replicas whose loss in that round is counted. */
  private counted = new Set<number>();
  private readonly counts = new Map<ResidualLossCause, Count>();

  /**
   * @param firstRound of the attempt
   * @param ofParameters replicas, where workers get differences of parameters
   */
  constructor(
    private readonly firstRound: number,
    private readonly journal: Pick<Journal, 'append'>,
    private readonly ofParameters = 0,
  ) {}

  /** A replica of the present round was encoded without what the round before had left. A message that comes twice counts once. */
  heard(replica: number, loss: Loss | undefined): void {
    if (loss !== undefined) this.present.set(replica, loss);
  }

  /**
   * The same of the round that was committed last: servers may have had the gradient before this contribution came. Another worker may have sent the replica
   * too, and nobody here knows whose gradient was first: a loss that may be one counts.
   */
  heardLate(replica: number, loss: Loss | undefined): void {
    if (this.newest === undefined || loss === undefined || this.counted.has(replica)) return;
    this.counted.add(replica);
    this.count(this.newest, [[replica, loss]]);
  }

  /** @param isLast round of the attempt: nothing may wait any longer */
  committed(round: number, isLast: boolean): void {
    if (round > 0 && round === this.firstRound)
      for (let replica = 0; replica < this.ofParameters; replica++) this.present.set(replica, 'absent');
    const losses = [...this.present].sort(([a], [b]) => a - b);
    this.present.clear();
    this.counted = new Set(losses.map(([replica]) => replica));
    this.newest = { round, isLast };
    this.count(this.newest, losses);
  }

  private count({ round, isLast }: Newest, losses: readonly (readonly [number, Loss])[]): void {
    for (const cause of ['checkpoint', 'moved', 'gap'] as const) {
      const replicas = losses.filter(([, loss]) => this.causeOf(round, loss) === cause).map(([replica]) => replica);
      const count = this.counts.get(cause) ?? { fromRound: round, replicas: 0, told: 0 };
      count.replicas += replicas.length;
      if (count.replicas === 0) continue;
      this.counts.set(cause, count);
      if (count.replicas >= 2 * count.told ? count.replicas > count.told : isLast && count.replicas > count.told)
        this.tell(round, cause, count, replicas);
    }
  }

  /** In words, for a loss of a round. */
  why(round: number, loss: Loss): string {
    return WHY[this.causeOf(round, loss)];
  }

  private causeOf(round: number, loss: Loss): ResidualLossCause {
    if (loss === 'outdated') return 'gap';
    return round === this.firstRound ? 'checkpoint' : 'moved';
  }

  private tell(round: number, cause: ResidualLossCause, count: Count, replicas: readonly number[]): void {
    count.told = count.replicas;
    const { fromRound } = count;
    const who = replicas.length > 0 ? `replicas ${replicas.slice(0, NAMED).join(' ')}${replicas.length > NAMED ? ' …' : ''}` : 'replicas';
    const what =
      cause === 'checkpoint' && this.ofParameters > 0 ? 'what workers had of the parameters' : `what the codec had kept of ${who}`;
    const since = round === fromRound ? '' : `; ${count.replicas} times since round ${fromRound}`;
    this.journal.append({
      kind: 'event',
      type: RESIDUAL_LOST,
      message: `${what} was lost in round ${round}: ${WHY[cause]}${since}; from round ${fromRound} on the bits are not those of an undisturbed run`,
      data: { cause, fromRound, replicas: count.replicas },
    });
  }
}
