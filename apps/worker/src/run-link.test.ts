import { expect, test } from 'vitest';
import { linkOf } from '@paceline/runtime';
import { parseRunSpec } from '@paceline/spec';
import { linkOfRun } from './run-link.js';

test.each(['20mbit,30ms', '1.5gbit', '0.5mbit,1ms', '8kbit', '999999gbit,99999ms', '7kbit', '20', '20mbit,30', 'fast', '0mbit', ''])(
  'the spec of a run takes the link %j if it is one',
  (link) => {
    const parsed = parseRunSpec({ link });
    expect(parsed.ok).toBe(linkOf(link) !== undefined);
    if (!parsed.ok) return expect(parsed.issues).toEqual([{ path: 'link', message: expect.stringContaining('must be like 20mbit,30ms') }]);
    expect(linkOfRun(parsed.spec)?.delayMs).toBe(linkOf(link)?.delayMs);
  },
);

test('a run without a link has none of its own', () => {
  expect(linkOfRun({})).toBeUndefined();
});
