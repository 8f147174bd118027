import { decodeJwt } from 'jose';
import { expect, test } from 'vitest';
import type { Settings } from '../environment.js';
import { AccessTokens } from './access-tokens.js';

const RUN = '0190c5a5-0000-7000-8000-000000000000';
const DAY_S = 86_400;

test('tokens last as long as any attempt: they are sent once, and shown again at every connection', async () => {
  const tokens = new AccessTokens({ tokenSecret: 'a secret of a test that is long enough to be one' } as Settings);
  const { token, seatToken } = await tokens.ofMembers(RUN, 1);
  const lifetimeS = (text: string): number => decodeJwt(text).exp! - decodeJwt(text).iat!;
  for (const member of [token, seatToken]) expect(lifetimeS(member)).toBeGreaterThan(365 * DAY_S);
  expect(lifetimeS(await tokens.sign({ run: RUN, attempt: 1, role: 'worker' }))).toBeGreaterThan(365 * DAY_S);
});
