/** The CA of a stack on disk: made once, kept, renewed in time, and followed by processes. */
import { X509Certificate } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { keepCertificates, tlsVariables } from './certificates.js';
import { followTlsFiles } from './tls-files.js';

const DAY_MS = 86_400_000;
const nowMs = Date.parse('2026-06-01T00:00:00Z');
let folder: string;
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'paceline-certificates-'))));
afterAll(() => rmSync(folder, { recursive: true }));

const read = (path: string): X509Certificate => new X509Certificate(readFileSync(join(folder, path)));

test('a stack makes its CA once, certificates for both roles, and new ones when a third of their time is left', async () => {
  const first = await keepCertificates({ folder, nowMs });
  expect(first).toEqual({ made: ['server', 'worker'], endsAtMs: nowMs + 30 * DAY_MS });
  const authority = read('ca/ca.crt');
  for (const role of ['server', 'worker']) {
    const certificate = read(`${role}/tls.crt`);
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(certificate.subjectAltName).toMatch(new RegExp(`^URI:paceline://stack-[0-9a-f]{12}/${role}$`));
  }
  for (const key of ['ca/ca.key', 'server/tls.key', 'worker/tls.key']) expect(statSync(join(folder, key)).mode & 0o777).toBe(0o600);
  expect((await keepCertificates({ folder, nowMs: nowMs + 19 * DAY_MS })).made).toEqual([]);
  rmSync(join(folder, 'worker/tls.key'));
  expect((await keepCertificates({ folder, nowMs })).made).toEqual(['worker']);
  expect((await keepCertificates({ folder, nowMs: nowMs + 21 * DAY_MS })).made).toEqual(['server', 'worker']);
  expect(read('ca/ca.crt').fingerprint256).toBe(authority.fingerprint256);
  const later = await keepCertificates({ folder, nowMs: nowMs + 3_300 * DAY_MS });
  expect(later.made).toEqual(['server', 'worker']);
  expect(read('ca/ca.crt').fingerprint256).not.toBe(authority.fingerprint256);
});

test('a process takes new files, and keeps what it has while they do not fit', async () => {
  await keepCertificates({ folder, nowMs });
  const own = join(folder, 'own');
  cpSync(join(folder, 'worker'), own, { recursive: true });
  const taken: string[] = [];
  const { PACELINE_TLS_CA, PACELINE_TLS_CERT, PACELINE_TLS_KEY } = tlsVariables(own);
  const settings = { PACELINE_TLS_CA, PACELINE_TLS_CERT, PACELINE_TLS_KEY };
  const make = ({ cert }: { cert: string }) => {
    taken.push(cert);
    const replace = (next: { cert: string }): void => {
      if (next.cert === 'half') throw new Error('no certificate');
      taken.push(next.cert);
    };
    return { endsAtMs: 0, replace };
  };
  const log = { info: () => undefined, warn: () => undefined };
  const followed = followTlsFiles(settings, make, log, 5)!;
  writeFileSync(PACELINE_TLS_CERT!, 'half');
  await new Promise((resolve) => setTimeout(resolve, 40));
  expect(taken).toHaveLength(1);
  writeFileSync(PACELINE_TLS_CERT!, 'whole');
  while (taken.length === 1) await new Promise((resolve) => setTimeout(resolve, 5));
  followed.stop();
  expect(taken[1]).toBe('whole');
  expect(() => followTlsFiles({ ...settings, PACELINE_TLS_KEY: undefined }, make, log)).toThrow(/^Only some of PACELINE_TLS_CA/);
  expect(() => followTlsFiles({ ...settings, PACELINE_TLS_KEY: join(own, 'none') }, make, log)).toThrow(/cannot be used: ENOENT/);
  const none = { PACELINE_TLS_CA: undefined, PACELINE_TLS_CERT: undefined, PACELINE_TLS_KEY: undefined };
  expect(followTlsFiles(none, make, log)).toBeUndefined();
});
