/** The events of a run: the newest page of what is stored, then whatever comes; older ones on demand. */
import { useCallback, useEffect, useRef, useState } from 'react';
import { ApiFault, asFault } from '../graphql/api-fault.js';
import { Events, RunEvents } from '../graphql/generated/operations.js';
import { followRun } from '../live/follow.js';
import { useApi } from '../session/api-context.js';
import { EMPTY_FEED, SkippedEvents, lastSeq, withEvent, withOlder, type Feed, type FeedEvent } from './event-feed.js';

const PAGE_SIZE = 100;
const CHANNEL = 'events';

export interface EventsOfRun {
  readonly feed: Feed;
  /** Nothing is known yet. */
  readonly loading: boolean;
  readonly refused: ApiFault | undefined;
  readonly loadOlder: () => Promise<void>;
}

/**
 * @param attempt the present one: the events of a run that is over end, and go on with its next attempt
 * @param onEvent told of each new event; its identity must not change
 */
export function useEvents(runId: string, attempt: number, onEvent: () => void): EventsOfRun {
  const { ask, live, connection, onFault } = useApi();
  const [feed, setFeed] = useState<Feed>();
  const [refused, setRefused] = useState<ApiFault>();
  const held = useRef<Feed>(EMPTY_FEED);

  useEffect(
    () => () => {
      held.current = EMPTY_FEED;
    },
    [runId],
  );

  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const show = (next: Feed): void => setFeed((held.current = next));
    const accept = acceptor(held, (next) => {
      show(next);
      onEvent();
    });
    const open = async function* (ended: AbortSignal): AsyncGenerator<void> {
      if (lastSeq(held.current) === 0) show(await newest(ask, runId, ended));
      for await (const { runEvents } of live.subscribe(RunEvents, { runId, afterSeq: lastSeq(held.current) }, ended))
        yield accept(runEvents);
    };
    connection
      .whileFollowing(followRun(open, (state) => connection.report(CHANNEL, state), signal))
      .catch((error: unknown) => {
        if (!signal.aborted && !onFault(asFault(error))) setRefused(asFault(error));
      })
      .finally(() => connection.forget(CHANNEL));
    return () => controller.abort();
  }, [ask, live, connection, onFault, runId, attempt, onEvent]);

  const loadOlder = useCallback(async () => {
    const before = held.current.olderCursor;
    if (before === null) return;
    const { run } = await ask(Events, { id: runId, last: PAGE_SIZE, before });
    if (run)
      setFeed(
        (held.current = withOlder(
          held.current,
          run.events.edges.map(({ node }) => node),
          cursorOf(run.events.pageInfo),
        )),
      );
  }, [ask, runId]);

  return { feed: feed ?? EMPTY_FEED, loading: feed === undefined, refused, loadOlder };
}

async function newest(ask: ReturnType<typeof useApi>['ask'], runId: string, signal: AbortSignal): Promise<Feed> {
  const { run } = await ask(Events, { id: runId, last: PAGE_SIZE }, signal);
  if (!run) throw new ApiFault('REFUSED', 'There is no such run.');
  return withOlder(
    EMPTY_FEED,
    run.events.edges.map(({ node }) => node),
    cursorOf(run.events.pageInfo),
  );
}

const cursorOf = (page: { readonly hasPreviousPage: boolean; readonly startCursor: string | null }): string | null =>
  page.hasPreviousPage ? page.startCursor : null;

/** A gap is asked for once more; one that is still there then is a gap in what the server has, and is shown as it is. */
function acceptor(held: { readonly current: Feed }, show: (feed: Feed) => void): (event: FeedEvent) => void {
  let gapAfter = -1;
  return (event) => {
    const feed = held.current;
    try {
      const next = withEvent(feed, event);
      if (next !== feed) show(next);
    } catch (error) {
      if (!(error instanceof SkippedEvents)) throw error;
      if (gapAfter !== lastSeq(feed)) {
        gapAfter = lastSeq(feed);
        throw new ApiFault('UNREACHABLE', error.message);
      }
      show({ ...feed, events: [...feed.events, event] });
    }
  };
}
