import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Connection, SILENT_AFTER_MS } from './connection.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('the connection of a page', () => {
  it('is lost while a request has no answer for long, and not because of one that was given up', async () => {
    const connection = new Connection(() => Date.now());
    const changes: string[] = [];
    connection.subscribe(() => changes.push(connection.state()));
    let answer: (text: string) => void = () => undefined;
    const asked = connection.watched('run', new Promise<string>((resolve) => (answer = resolve)), new AbortController().signal);
    await vi.advanceTimersByTimeAsync(SILENT_AFTER_MS - 1);
    expect(connection.state()).toBe('live');
    await vi.advanceTimersByTimeAsync(2);
    expect([connection.state(), connection.silentForMs()]).toEqual(['lost', SILENT_AFTER_MS + 1]);
    answer('here');
    expect(await asked).toBe('here');
    connection.report('run', 'live');
    expect([connection.state(), connection.silentForMs(), changes]).toEqual(['live', 0, ['lost', 'live']]);

    const left = new AbortController();
    void connection.watched('run', new Promise(() => undefined), left.signal);
    left.abort();
    await vi.advanceTimersByTimeAsync(2 * SILENT_AFTER_MS);
    expect(connection.state()).toBe('live');
  });
  it('is lost as long as one of its channels is, and a channel that has ended is none', () => {
    const connection = new Connection();
    connection.report('run', 'lost');
    connection.report('events', 'lost');
    connection.report('run', 'live');
    expect(connection.state()).toBe('lost');
    connection.forget('events');
    expect(connection.state()).toBe('live');
  });
  it('is not lost because of a socket that nobody wants any more', async () => {
    const connection = new Connection();
    const leave: (() => void)[] = [];
    const page = () => connection.whileFollowing(new Promise<void>((resolve) => leave.push(resolve)));
    const pages = [page(), page()];
    connection.reportSocket('lost');
    leave[0]!();
    await pages[0];
    expect(connection.state(), 'the other waits for it').toBe('lost');
    leave[1]!();
    await pages[1];
    expect(connection.state()).toBe('live');
    connection.reportSocket('lost');
    expect(connection.state(), 'a socket that ends after its page').toBe('live');
    pages.push(page());
    connection.reportSocket('lost');
    connection.reportSocket('open');
    expect(connection.state()).toBe('live');
    connection.reportSocket('lost');
    connection.reportSocket('closed');
    expect(connection.state(), 'a socket that was closed after the last subscription').toBe('live');
  });
});
