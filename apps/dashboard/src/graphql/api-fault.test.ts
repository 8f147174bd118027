import { PacelineApiError } from '@paceline/client';
import { describe, expect, it } from 'vitest';
import { asFault } from './api-fault.js';

const fault = (code: string, details?: ConstructorParameters<typeof PacelineApiError>[2], message = 'x') =>
  asFault(new PacelineApiError(code, message, details));

describe('what a person can do about an error of the api', () => {
  it('tells a key that is not accepted from an api that is away', () => {
    expect(fault('BAD_REQUEST', { httpStatus: 401 })).toMatchObject({ kind: 'UNAUTHENTICATED', isTemporary: false });
    expect(fault('UNAUTHENTICATED', {}, 'no key')).toMatchObject({ kind: 'UNAUTHENTICATED', message: 'no key' });
    expect(fault('UNAVAILABLE', { httpStatus: 503, retryAfterMs: 3000 }, 'PostgreSQL is away')).toMatchObject({
      kind: 'UNREACHABLE',
      message: 'PostgreSQL is away',
      retryAfterMs: 3000,
      isTemporary: true,
    });
    expect(fault('BAD_REQUEST', { httpStatus: 429, retryAfterMs: 60_000 })).toMatchObject({ kind: 'RATE_LIMITED', isTemporary: true });
  });
  it('asks again where nothing, or something else than the api, has answered', () => {
    for (const code of ['UNREACHABLE', 'TIMEOUT', 'BAD_ANSWER', 'SERVICE_UNAVAILABLE'])
      expect(fault(code)).toMatchObject({ kind: 'UNREACHABLE' });
    expect(asFault(new Event('error'))).toMatchObject({ kind: 'UNREACHABLE' });
  });
  it('passes on what the api refuses, as plain text', () => {
    expect(fault('BAD_REQUEST', { httpStatus: 400 }, 'no \u001b[31mfield')).toMatchObject({
      kind: 'REFUSED',
      message: 'no field',
      isTemporary: false,
    });
  });
});
