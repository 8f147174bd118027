/** Manifests as large as they may be, with an api whose heap is the one of its image: none of them ends it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endProcess, startPostgres, startRedis, waitForReady, type RunningRedis, type RunningService } from '@paceline/runtime';
import type { DatasetManifest } from '@paceline/spec';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { flowers, type Prepared } from './prepared.js';
import { TOKEN_SECRET } from './services.js';

const API = join(import.meta.dirname, '../../apps/api/dist/bundle/main.js');
const folder = join(tmpdir(), `paceline-large-manifests-${process.pid}`);
let postgres: RunningService;
let redis: RunningRedis;
let api: ChildProcess;
let url: string;
let headers: Record<string, string>;

beforeAll(async () => {
  await Promise.all([
    startPostgres({ dataDir: `${folder}-postgres`, temporary: true }).then((started) => (postgres = started)),
    startRedis({ dataDir: `${folder}-redis`, temporary: true }).then((started) => (redis = started)),
  ]);
  api = spawn(process.execPath, ['--max-old-space-size=160', API], {
    env: {
      PATH: process.env['PATH'],
      DATABASE_URL: postgres.url,
      REDIS_URL: redis.url,
      PACELINE_PORT: '0',
      PACELINE_TOKEN_SECRET: TOKEN_SECRET,
      PACELINE_DATA_STORE: `${folder}-datasets`,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ready = (await waitForReady(api, 60_000, 'api')) as unknown as { url: string; bootstrapKey: string };
  ({ url } = ready);
  headers = { authorization: `Bearer ${ready.bootstrapKey}` };
});
afterAll(async () => {
  if (api) await endProcess(api);
  await Promise.all([postgres?.stop(), redis?.stop()]);
  rmSync(`${folder}-datasets`, { recursive: true, force: true });
});

interface Shown {
  readonly dataset: {
    readonly version: { readonly schema: { readonly columns: object[] }; readonly preview: { readonly rows: unknown[] } };
  };
}

const gql = async (query: string, variables: object = {}) => {
  const body = JSON.stringify({ query, variables });
  const reply = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: Object.assign({ 'content-type': 'application/json' }, headers),
    body,
  });
  return (await reply.json()) as { data: Shown; errors?: unknown[] };
};

async function commit(name: string, { shards }: Prepared, manifest: unknown): Promise<{ status: number; issues?: unknown }> {
  for (const [hash, bytes] of shards)
    await fetch(`${url}/api/v1/datasets/shards/${hash}`, {
      method: 'PUT',
      headers: Object.assign({ 'content-type': 'application/octet-stream' }, headers),
      body: new Uint8Array(bytes),
    });
  const reply = await fetch(`${url}/api/v1/datasets/${name}/versions?source=test`, {
    method: 'POST',
    headers: Object.assign({ 'content-type': 'application/json' }, headers),
    body: JSON.stringify(manifest),
  });
  return Object.assign((await reply.json()) as { issues?: unknown }, { status: reply.status });
}

const colour = (manifest: DatasetManifest, change: (words: string[]) => { vocabulary: string[]; counts: number[] }): unknown =>
  Object.assign({}, manifest, {
    columns: manifest.columns.map((column) => {
      if (column.kind !== 'category') return column;
      const { vocabulary, counts } = change([...column.vocabulary]);
      return Object.assign({}, column, { vocabulary, statistics: Object.assign({}, column.statistics, { counts }) });
    }),
  });

const SCHEMA = `query($name: String!) { dataset(name: $name) { version { schema { columns { name vocabularySize vocabulary } } preview(rows: 1) { rows } } } }`;

it('a manifest with a million words is taken and shown, and the api goes on', async () => {
  const flower = flowers();
  const manifest = colour(flower.manifest, (words) => {
    const vocabulary = [...words, ...Array.from({ length: 1_000_000 - words.length }, (_, i) => `another word ${i}`)];
    return { vocabulary, counts: vocabulary.map((_, code) => (code < 3 ? 2 : 0)) };
  });
  expect(await commit('million', flower, manifest)).toMatchObject({ status: 201 });
  const asked = await Promise.all([1, 2].map(() => gql(SCHEMA, { name: 'million' })));
  for (const { data, errors } of asked) {
    expect(errors).toBeUndefined();
    const { schema, preview } = data.dataset.version;
    expect(schema.columns[1]).toMatchObject({ vocabularySize: 1_000_000, vocabulary: expect.arrayContaining(['red', 'another word 96']) });
    expect(preview.rows).toEqual([[0, 'red', 'note 0']]);
  }
  // A run would need it in the memory of the api, which has no room for it.
  const run = await gql('mutation($spec: RunSpecInput!) { createRun(spec: $spec) { __typename } }', {
    spec: { dataset: 'million', features: { inputs: { size: [{ kind: 'number', columns: ['size'] }] } } },
  });
  expect(run.errors![0]).toMatchObject({ extensions: { code: 'TOO_LARGE' }, message: expect.stringContaining('--max-old-space-size') });
  expect((await gql('{ __typename }')).data).toEqual({ __typename: 'Query' });
});

it('counts that no word has, and more words than all columns may have, are refused', async () => {
  const flower = flowers(6, 1);
  const counts = colour(flower.manifest, (vocabulary) => ({ vocabulary, counts: Array.from({ length: 1_200_000 }, () => 0) }));
  expect(await commit('counts', flower, counts)).toMatchObject({ status: 422 });
  const some = colour(flower.manifest, () => {
    const vocabulary = Array.from({ length: 600_000 }, (_, i) => `w${i}`);
    return { vocabulary, counts: vocabulary.map(() => 0) };
  }) as DatasetManifest;
  const more = Object.assign({}, some, { columns: [...some.columns, Object.assign({}, some.columns[1], { name: 'tint' })] });
  const refused = await commit('words', flower, more);
  expect([refused.status, refused.issues]).toEqual([
    422,
    [{ path: 'columns', message: 'have 1200000 words together; at most 1000000 are taken' }],
  ]);
  expect((await gql('{ __typename }')).data).toEqual({ __typename: 'Query' });
});
