import { describe, expect, it } from 'vitest';
import { refusal } from './live.js';
import { faultOf } from './request.js';

const answer = (status: number, body?: object, headers: Record<string, string> = {}) =>
  faultOf({ status, headers: new Headers(headers) }, body);

describe('answers over HTTP', () => {
  it('tells a key that is not accepted from an api that is away', () => {
    expect(answer(401)).toMatchObject({ kind: 'UNAUTHENTICATED', isTemporary: false });
    expect(answer(200, { data: null, errors: [{ message: 'no key', extensions: { code: 'UNAUTHENTICATED' } }] })).toMatchObject({
      kind: 'UNAUTHENTICATED',
      message: 'no key',
    });
    expect(answer(503, { detail: 'PostgreSQL is away' }, { 'retry-after': '3' })).toMatchObject({
      kind: 'UNREACHABLE',
      message: 'PostgreSQL is away',
      retryAfterMs: 3000,
      isTemporary: true,
    });
    expect(answer(429, undefined, { 'retry-after': '60' })).toMatchObject({
      kind: 'RATE_LIMITED',
      retryAfterMs: 60_000,
      isTemporary: true,
    });
  });
  it('says that an address without GraphQL is not the api', () => {
    for (const odd of [answer(200), answer(404), answer(200, {}), answer(200, { data: null })])
      expect(odd).toMatchObject({ kind: 'UNREACHABLE' });
  });
  it('passes on what the api refuses, as plain text', () => {
    expect(answer(400, { errors: [{ message: 'no \u001b[31mfield' }] })).toMatchObject({
      kind: 'REFUSED',
      message: 'no field',
      isTemporary: false,
    });
    expect(answer(200, { data: { run: null } })).toBeUndefined();
  });
});

describe('ends of a subscription', () => {
  it('is over for good when the server refuses, and taken up again when the connection broke', () => {
    expect(refusal({ code: 4403, reason: 'Forbidden' })).toMatchObject({ kind: 'UNAUTHENTICATED', isTemporary: false });
    expect(refusal({ code: 4400, reason: 'Invalid message' })).toMatchObject({ kind: 'REFUSED', isTemporary: false });
    for (const code of [1006, 1001, 1012, 4408, 4499, 4504])
      expect(refusal({ code, reason: '' })).toMatchObject({ kind: 'UNREACHABLE', isTemporary: true });
    expect(refusal([{ message: 'no such run', extensions: { code: 'NOT_FOUND' } }])).toMatchObject({
      kind: 'REFUSED',
      message: 'no such run',
    });
    expect(refusal([{ message: 'PostgreSQL is away', extensions: { code: 'SERVICE_UNAVAILABLE' } }])).toMatchObject({ isTemporary: true });
    expect(refusal(new Event('error'))).toMatchObject({ kind: 'UNREACHABLE' });
    expect(refusal(undefined)).toMatchObject({ kind: 'UNREACHABLE' });
  });
});
