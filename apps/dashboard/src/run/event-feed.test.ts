import { describe, expect, it } from 'vitest';
import { EMPTY_FEED, MAX_EVENTS, SkippedEvents, lastSeq, withEvent, withOlder, type Feed, type FeedEvent } from './event-feed.js';

const event = (seq: number): FeedEvent => ({ seq, type: 'view.changed', message: `event ${seq}`, at: '2026-03-01T12:00:00Z', attempt: 1 });
const events = (from: number, to: number): FeedEvent[] => Array.from({ length: to - from + 1 }, (_, i) => event(from + i));
const numbers = (feed: Feed): number[] => feed.events.map(({ seq }) => seq);

describe('event feed', () => {
  it('takes events in order and drops what it knows', () => {
    const feed = [5, 6, 6, 5, 7].map(event).reduce(withEvent, EMPTY_FEED);
    expect(numbers(feed)).toEqual([5, 6, 7]);
    expect(lastSeq(feed)).toBe(7);
    expect(lastSeq(EMPTY_FEED)).toBe(0);
  });
  it('refuses an event that skips numbers', () => {
    const feed = withEvent(EMPTY_FEED, event(5));
    expect(() => withEvent(feed, event(7))).toThrow(SkippedEvents);
    expect(() => withEvent(feed, event(7))).toThrow('events 6 to 6 are missing');
  });
  it('puts older events in front, each once', () => {
    const feed = withOlder(events(10, 12).reduce(withEvent, EMPTY_FEED), events(7, 10), 'cursor-7');
    expect(numbers(feed)).toEqual([7, 8, 9, 10, 11, 12]);
    expect(feed.olderCursor).toBe('cursor-7');
    expect(withOlder(feed, events(1, 6), null).olderCursor).toBeNull();
  });
  it('holds at most MAX_EVENTS and forgets the oldest first', () => {
    const full: Feed = { events: events(1, MAX_EVENTS), olderCursor: 'x' };
    const feed = withEvent(full, event(MAX_EVENTS + 1));
    expect(feed.events.length).toBe(MAX_EVENTS);
    expect([feed.events[0]!.seq, lastSeq(feed)]).toEqual([2, MAX_EVENTS + 1]);
    expect(withOlder(feed, [event(1)], 'y')).toEqual({ ...feed, olderCursor: null });
  });
});
