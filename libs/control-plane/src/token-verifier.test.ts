import { SignJWT } from 'jose';
import { expect, it } from 'vitest';
import { TOKEN_AUDIENCE, TOKEN_ISSUER } from './contract/access-tokens.js';
import { attemptKey, memberKey, tokenVerifier } from './token-verifier.js';

const SECRET = 'a secret of a test that is long enough to be one';
const RUN = '0190c5a5-0000-7000-8000-000000000000';
const sign = (key: string, attempt: number): Promise<string> =>
  new SignJWT({ run: RUN, attempt, role: 'worker' })
    .setProtectedHeader({ alg: 'HS256' })
    .setIssuer(TOKEN_ISSUER)
    .setAudience(TOKEN_AUDIENCE)
    .setExpirationTime('1h')
    .sign(new TextEncoder().encode(key));

it('the key of an attempt opens this attempt alone', async () => {
  const key = attemptKey(SECRET, RUN, 2);
  const verify = tokenVerifier((run, attempt) => (run === RUN && attempt === 2 ? key : undefined));
  expect(await verify(await sign(key, 2))).toMatchObject({ run: RUN, attempt: 2, role: 'worker' });
  await expect(verify(await sign(attemptKey(SECRET, RUN, 3), 3))).rejects.toMatchObject({ code: 'RUN_UNKNOWN' });
  for (const other of [SECRET, attemptKey(SECRET, RUN, 1), attemptKey('another secret', RUN, 2)])
    await expect(verify(await sign(other, 2))).rejects.toMatchObject({ code: 'TOKEN_INVALID' });
  await expect(verify('x.y.z')).rejects.toMatchObject({ code: 'TOKEN_INVALID' });
});

it('a token of an older attempt is refused as late, one of a later attempt as unknown', async () => {
  const key = attemptKey(SECRET, RUN, 2);
  const verify = tokenVerifier((_, attempt) => memberKey({ attempt: 2, tokenKey: key }, attempt));
  expect(await verify(await sign(key, 2))).toMatchObject({ attempt: 2 });
  await expect(verify(await sign(attemptKey(SECRET, RUN, 1), 1))).rejects.toMatchObject({ code: 'STALE_FENCE' });
  await expect(verify(await sign(attemptKey(SECRET, RUN, 3), 3))).rejects.toMatchObject({ code: 'RUN_UNKNOWN' });
  expect(memberKey(undefined, 1)).toBeUndefined();
});
