import { memo, useState, type ReactNode } from 'react';
import { asFault } from '../graphql/api-fault.js';
import { Card } from '../components/Card.js';
import { useApi } from '../session/api-context.js';
import { count, dateAndTime, shortTime, zoneAt } from '../text/format.js';
import { plainText } from '../text/plain-text.js';
import type { FeedEvent } from './event-feed.js';
import type { EventsOfRun } from './use-events.js';

/** How many of the newest are written out; the rest on demand, so that a long run does not make a slow page. */
const SHOWN_AT_FIRST = 200;

export function EventList({ feed, loading, refused, loadOlder, attempts }: EventsOfRun & { readonly attempts: number }): ReactNode {
  const { onFault } = useApi();
  const [shown, setShown] = useState(SHOWN_AT_FIRST);
  const [older, setOlder] = useState<{ readonly busy: boolean; readonly problem?: string }>({ busy: false });
  const newestFirst = feed.events.slice(-shown).reverse();
  const more = feed.events.length > shown || feed.olderCursor !== null;

  const showOlder = async (): Promise<void> => {
    setOlder({ busy: true });
    try {
      if (feed.events.length < shown + SHOWN_AT_FIRST) await loadOlder();
      setShown(shown + SHOWN_AT_FIRST);
      setOlder({ busy: false });
    } catch (error) {
      const fault = asFault(error);
      if (!onFault(fault)) setOlder({ busy: false, problem: fault.message });
    }
  };
  return (
    <Card
      title="Events"
      className="events"
      aside={feed.events.length > 0 && <span className="faint">newest first, times in {zoneAt(Date.now())}</span>}
    >
      {refused && <p className="problem">{refused.message}</p>}
      {newestFirst.length === 0 ? (
        <p className="nothing">{loading ? 'Loading…' : 'Nothing has happened yet'}</p>
      ) : (
        <ol className="event-list" tabIndex={0} aria-label="Events, newest first">
          {newestFirst.map((event) => (
            <EventLine key={event.seq} event={event} withAttempt={attempts > 1} />
          ))}
        </ol>
      )}
      {more && (
        <button type="button" className="button small" disabled={older.busy} onClick={() => void showOlder()}>
          {older.busy ? 'Loading…' : 'Older events'}
        </button>
      )}
      {older.problem && <p className="problem">{older.problem}</p>}
    </Card>
  );
}

const EventLine = memo(function EventLine({ event, withAttempt }: { event: FeedEvent; withAttempt: boolean }): ReactNode {
  return (
    <li className={`event ${toneOfEvent(event.type)}`} data-seq={event.seq}>
      <time dateTime={event.at} title={dateAndTime(event.at)}>
        {shortTime(event.at)}
      </time>
      <span className="event-type">{plainText(event.type, 60)}</span>
      <span className="event-message">
        {plainText(event.message)}
        {withAttempt && <span className="faint"> · attempt {count(event.attempt)}</span>}
      </span>
    </li>
  );
});

function toneOfEvent(type: string): string {
  if (/\b(failed|lost|refused|gap)$/.test(type)) return 'bad';
  return /\bfinished$/.test(type) ? 'good' : '';
}
