import { expect, it } from 'vitest';
import type { Viewer } from '../teams/authentication.js';
import { MAX_SUBSCRIPTIONS_PER_KEY, MAX_SUBSCRIPTIONS_PER_TEAM, Subscriptions } from './subscriptions.js';

const viewer = (teamId: string, apiKeyId: string) => ({ teamId, apiKeyId }) as Viewer;

it('are bounded by key and by team, and make room when they end', async () => {
  const subscriptions = new Subscriptions();
  const open = (who: Viewer) =>
    subscriptions.open(who, async function* (signal) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      yield 1;
    });
  const keys = MAX_SUBSCRIPTIONS_PER_TEAM / MAX_SUBSCRIPTIONS_PER_KEY;
  const opened = Array.from({ length: MAX_SUBSCRIPTIONS_PER_TEAM }, (_, i) => open(viewer('team', `key ${i % keys}`)));
  expect(() => open(viewer('team', 'key 0'))).toThrow(/This key has 100/);
  expect(() => open(viewer('team', 'another key'))).toThrow(/Your team has 400/);
  open(viewer('another team', 'key of it'));
  await opened[0]!.return!();
  open(viewer('team', 'another key'));
  expect(subscriptions.count).toBe(MAX_SUBSCRIPTIONS_PER_TEAM + 1);
});
