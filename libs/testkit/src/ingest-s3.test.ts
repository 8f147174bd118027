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

it('an object that is written again with as many bytes is not read half and half', async () => {
  const [before, after] = ['1', '2'].map((x) => Buffer.from(`a,b\n${`${x},${x.repeat(4000)} text\n`.repeat(2200)}`));
  server.objects.set('d.csv', before!);
  const parts = new Set<string>();
  server.fault = ({ method, key, query }) => {
    // The first part alone is of the one before.
    if (method === 'GET' && key === 'd.csv' && !query.has('list-type') && parts.size === 0) parts.add(key);
    else if (key === 'd.csv') server.objects.set('d.csv', after!);
    return 'none';
  };
  await expect(imported('d.csv')).rejects.toMatchObject({ code: 'SOURCE_CHANGED', file: 's3://raw/d.csv' });
});

it('takes keys as others name them', async () => {
  const table = Buffer.from('a,b\n1,x\n2,y\n');
  for (const key of ['my photos/a (1).csv', 'my photos/größe é.csv', 'plain/100%.csv']) server.objects.set(key, table);
  expect((await imported('my photos')).manifest.splits.train.rows).toBe(4);
  expect((await imported('my photos/a (1).csv')).manifest.splits.train.rows).toBe(2);
  expect((await imported('my%20photos/größe é.csv')).manifest.splits.train.rows).toBe(2);
  expect((await imported('plain')).manifest.splits.train.rows).toBe(2);
  await expect(imported('plain/%2e%2e%2fx')).rejects.toMatchObject({ code: 'OPTIONS_INVALID' });
});
