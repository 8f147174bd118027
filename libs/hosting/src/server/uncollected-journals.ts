/**
 * Journals of attempts that have ended here, and whose end the api has not stored for long: PostgreSQL, Redis or the api are away. They are published until
 * it has; nothing else of these runs is kept. They are lost with the process.
 */
import type { CancelTimer } from '@paceline/exchange';
import { PLACES_PER_SERVER } from '@paceline/control-plane';
import type { JournalPublisher } from './journal-publisher.js';
import type { ServerContext } from './server-context.js';

/** As many as run at a time; the oldest go first. */
const MOST = PLACES_PER_SERVER;
/** A run that the api does not know any more is not acknowledged. */
const KEPT_FOR_MS = 86_400_000;
const LOOK_MS = 10_000;

export interface UncollectedJournal {
  readonly runId: string;
  readonly attempt: number;
  readonly publisher: Pick<JournalPublisher, 'isDrained' | 'flush' | 'stop'>;
}

export class UncollectedJournals {
  /** The oldest first, each with what ends the look at it. */
  private readonly kept = new Map<UncollectedJournal, CancelTimer>();

  constructor(private readonly context: Pick<ServerContext, 'clock' | 'log'>) {}

  keep(journal: UncollectedJournal): void {
    const { clock, log } = this.context;
    const untilMs = clock.now() + KEPT_FOR_MS;
    const look = (): void => {
      if (journal.publisher.isDrained) this.letGo(journal);
      else if (clock.now() >= untilMs) this.lose(journal);
    };
    log.warn({ run: journal.runId, attempt: journal.attempt }, 'the end of this run is not stored yet; its journal is kept until it is');
    this.kept.set(journal, clock.every(LOOK_MS, look));
    if (this.kept.size > MOST) this.lose(this.kept.keys().next().value!);
  }

  /** Tells the api what they hold, without waiting for the next turn. */
  async flush(): Promise<void> {
    await Promise.all([...this.kept.keys()].map(({ publisher }) => publisher.flush()));
  }

  private lose(journal: UncollectedJournal): void {
    this.context.log.error({ run: journal.runId, attempt: journal.attempt }, 'the api never collected the end of this journal');
    this.letGo(journal);
  }

  private letGo(journal: UncollectedJournal): void {
    this.kept.get(journal)?.();
    this.kept.delete(journal);
    journal.publisher.stop();
  }
}
