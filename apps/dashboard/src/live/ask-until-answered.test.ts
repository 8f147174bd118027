import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ApiFault } from '../graphql/api-fault.js';
import { askUntilAnswered } from './ask-until-answered.js';

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('window', new EventTarget());
  vi.stubGlobal('document', new EventTarget());
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function asked(...answers: (number | ApiFault)[]) {
  const said: unknown[] = [];
  let requests = 0;
  const page = new AbortController();
  const ask = (): Promise<number> => {
    const answer = answers[requests++] ?? 0;
    return answer instanceof ApiFault ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const ended = askUntilAnswered(
    ask,
    (answer) => said.push(answer),
    ({ kind }) => said.push(kind),
    page.signal,
  );
  return { said, page, ended, requests: () => requests };
}
const AWAY = new ApiFault('UNREACHABLE', 'PostgreSQL is away.');

it('what an api that was away did not answer is asked for again, ever more slowly, until it is there', async () => {
  const { said, ended, requests } = asked(AWAY, AWAY, new ApiFault('RATE_LIMITED', 'wait', 9_000), 5);
  await vi.advanceTimersByTimeAsync(3_500);
  expect([requests(), said]).toEqual([3, []]);
  await vi.advanceTimersByTimeAsync(8_000);
  expect(requests()).toBe(3);
  await vi.advanceTimersByTimeAsync(1_000);
  await ended;
  expect([requests(), said]).toEqual([4, [5]]);
});

it('what is refused is told and not asked for again', async () => {
  const { said, ended, requests } = asked(new ApiFault('UNAUTHENTICATED', 'no'), 5);
  await ended;
  expect([requests(), said]).toEqual([1, ['UNAUTHENTICATED']]);
});

it('a page that is gone asks for nothing and hears nothing', async () => {
  const { said, page, ended, requests } = asked(AWAY, 5);
  await vi.advanceTimersByTimeAsync(500);
  page.abort();
  await ended;
  await vi.advanceTimersByTimeAsync(20_000);
  expect([requests(), said]).toEqual([1, []]);
});
