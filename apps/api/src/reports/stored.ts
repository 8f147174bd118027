/** What storing a report of a coordinator has brought about. */
import type { JournalAck } from '@paceline/control-plane';

export interface Stored {
  /** To be acknowledged; undefined when the report speaks of a run that does not exist. */
  readonly ack: JournalAck | undefined;
  /** The run is over here, but its coordinator goes on: it has to be told. */
  readonly mustStop: boolean;
  readonly newEntries: number;
  /** Seats, phase or status are not what they were: the reconciler may want to act. */
  readonly changed: boolean;
}
