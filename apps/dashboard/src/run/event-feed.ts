/**
 * The events of one run as the page holds them: a gapless stretch of `seq`, oldest first. Older ones are put in front on demand; new ones
 * come behind. An event that is known is dropped; one that skips numbers is refused, so that the caller subscribes again
 * after the last number it has and loses nothing.
 */
export interface FeedEvent {
  readonly seq: number;
  readonly type: string;
  readonly message: string;
  readonly at: string;
  readonly attempt: number;
}

export interface Feed {
  readonly events: readonly FeedEvent[];
  /** Cursor for what is older than the first event; null when nothing is. */
  readonly olderCursor: string | null;
}

export const EMPTY_FEED: Feed = { events: [], olderCursor: null };
/** What a page can show and a browser can hold; the oldest make room. */
export const MAX_EVENTS = 2000;

export function lastSeq(feed: Feed): number {
  return feed.events.at(-1)?.seq ?? 0;
}

/** @throws SkippedEvents when numbers are missing between the feed and the event */
export function withEvent(feed: Feed, event: FeedEvent): Feed {
  const last = lastSeq(feed);
  if (event.seq <= last) return feed;
  if (last > 0 && event.seq !== last + 1) throw new SkippedEvents(last, event.seq);
  const events = [...feed.events, event];
  // The cursor of what is cut off is not known here, so older events cannot be asked for any more.
  return events.length > MAX_EVENTS ? { events: events.slice(-MAX_EVENTS), olderCursor: null } : { ...feed, events };
}

export function withOlder(feed: Feed, older: readonly FeedEvent[], olderCursor: string | null): Feed {
  const first = feed.events[0]?.seq ?? Number.POSITIVE_INFINITY;
  const room = Math.max(0, MAX_EVENTS - feed.events.length);
  const fresh = older.filter((event) => event.seq < first).sort((a, b) => a.seq - b.seq);
  const kept = room === 0 ? [] : fresh.slice(-room);
  return { events: [...kept, ...feed.events], olderCursor: kept.length < fresh.length || room === 0 ? null : olderCursor };
}

export class SkippedEvents extends Error {
  override readonly name = 'SkippedEvents';
  constructor(last: number, next: number) {
    super(`events ${last + 1} to ${next - 1} are missing`);
  }
}
