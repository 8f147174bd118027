/** Sources of an import in a bucket: one object, all below a prefix, and what is said when they are not there, break off or change. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { importDataset, type ImportOptions, type ImportResult } from '@paceline/ingest';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { S3_TEST_CREDENTIALS, S3TestServer } from './s3-server.js';

let server: S3TestServer;
let workFolder: string;
beforeAll(async () => {
  Object.assign(process.env, S3_TEST_CREDENTIALS);
  server = await S3TestServer.start('raw');
  workFolder = await mkdtemp(path.join(tmpdir(), 'paceline-ingest-s3-'));
});
afterAll(async () => {
  await server.stop();
  await rm(workFolder, { recursive: true });
});
beforeEach(() => {
  server.fault = () => 'none';
  server.objects.clear();
});

const table = (from: number, rows: number): Buffer =>
  Buffer.from(`a,b\n${Array.from({ length: rows }, (_, i) => `${from + i},${'xyz'[i % 3]}`).join('\n')}\n`);
const SINK = { has: () => Promise.resolve(false), put: () => Promise.resolve() };
const imported = (key: string, options: Partial<ImportOptions> = {}): Promise<ImportResult> =>
  importDataset(Object.assign({ sources: [server.url(key)] }, options), SINK, { workFolder });

it('reads one object, and all below a prefix in the order of their names', async () => {
  server.objects.set('tables/1.csv', table(0, 300));
  server.objects.set('tables/2.csv', table(300, 200));
  server.objects.set('tables-of-others/3.csv', table(0, 7));
  expect((await imported('tables/1.csv')).manifest.splits.train.rows).toBe(300);
  const { manifest } = await imported('tables');
  expect(manifest.splits.train.rows).toBe(500);
  expect(manifest.columns[0]).toMatchObject({ kind: 'number', statistics: { minimum: 0, maximum: 499 } });
});

it('goes on after answers that break off, with the same version', async () => {
  server.objects.set('t.csv', table(0, 2000));
  const { version } = await imported('t.csv');
  let faults = 0;
  server.fault = ({ method }) => (method === 'GET' && faults++ < 2 ? 'reset' : 'none');
  expect((await imported('t.csv')).version).toBe(version);
  expect(faults).toBeGreaterThan(2);
});

it('names the object that is not there, may not be read, or is wrong', async () => {
  await expect(imported('nowhere.csv')).rejects.toMatchObject({ code: 'SOURCE_NOT_FOUND', file: 's3://raw/nowhere.csv' });
  server.objects.set('wrong.csv', Buffer.from('a,b\n1,2\n3\n'));
  await expect(imported('wrong.csv')).rejects.toMatchObject({ code: 'COLUMN_COUNT', file: 's3://raw/wrong.csv', row: 2 });
  server.fault = ({ key }) => (key.endsWith('wrong.csv') ? 403 : 'none');
  await expect(imported('wrong.csv')).rejects.toMatchObject({ code: 'SOURCE_FORBIDDEN', file: 's3://raw/wrong.csv' });
});
