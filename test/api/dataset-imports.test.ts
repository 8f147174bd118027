/** Datasets that the api imports, and what removing one takes away. */
import { Database } from '../../apps/api/src/database/database.js';
import { DataStore } from '../../apps/api/src/datasets/data-store.js';
import { DatasetImports } from '../../apps/api/src/datasets/dataset-imports.js';
import { DatasetShards } from '../../apps/api/src/datasets/dataset-shards.js';
import { ManifestChild } from '../../apps/api/src/datasets/manifest-child.js';
import { DataSweep } from '../../apps/api/src/datasets/data-sweep.js';
import { openStore } from '@paceline/storage';
import { datasetManifestKey, datasetShardKey } from '@paceline/spec';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { flowers, putShard, upload } from './prepared.js';
import { ControlPlane, until, type Caller } from './services.js';

let plane: ControlPlane;
let team: Caller & { teamId: string };
let others: Caller & { teamId: string };
beforeAll(async () => {
  plane = await ControlPlane.start({ settings: { importHosts: ['127.0.0.1', '*.example.org'] } });
  [team, others] = await Promise.all([plane.team('flowers'), plane.team('others')]);
});
afterAll(() => plane.stop());

const SHOW = `query($name: String!) { dataset(name: $name) { name trainExamples newest { version rows bytes source
  schema { label untrainedClasses isOrdered splits { name rows shards } columns { name kind vocabularySize vocabulary statistics } }
  preview(rows: 4, from: 2) { columns rows } } versions { version } runs { id } } }`;
const REMOVE = `mutation($dataset: String!, $force: Boolean) { removeDataset(dataset: $dataset, force: $force) { __typename
  ... on RemoveDatasetSuccess { name versions } ... on Conflict { message } ... on NotFound { message } } }`;
const store = () => openStore(join(plane.folder, 'datasets'));

describe('a file that the api imports', () => {
  const IMPORT = `mutation($name: String!, $uploads: [ID!], $url: String, $options: DatasetImportOptions, $key: String) {
    importDataset(name: $name, uploads: $uploads, url: $url, options: $options, idempotencyKey: $key) { __typename
      ... on ImportDatasetSuccess { import { id state } } ... on InvalidInput { issues { path message } } ... on NotFound { message } } }`;
  const STATE = 'query($id: ID!) { datasetImport(id: $id) { state reason rows version } }';
  const sendFile = (name: string, text: string) =>
    team.post(`/api/v1/datasets/uploads?name=${name}`).set('content-type', 'text/csv').send(text);
  const end = (id: string) =>
    until('the end of the import', async () => {
      const { data } = await team.gql(STATE, { id });
      return ['READY', 'FAILED'].includes(data.datasetImport.state) && data.datasetImport;
    });

  it('becomes a dataset, once for one idempotency key', async () => {
    const { status, body } = await sendFile(
      'wine.csv',
      ['a,b,kind', ...Array.from({ length: 3000 }, (_, i) => `${i},${i % 7},k${i % 2}`)].join('\n'),
    );
    expect([status, body.fileName]).toEqual([201, 'wine.csv']);
    const asked = { name: 'wine', uploads: [body.id], options: { label: 'kind', split: [0.8, 0.2] }, key: 'wine-1' };
    const [first, again] = [await team.gql(IMPORT, asked), await team.gql(IMPORT, asked)];
    const { id } = first.data.importDataset.import;
    expect(again.data.importDataset.import.id).toBe(id);
    expect((await others.gql(STATE, { id })).data.datasetImport).toBeNull();
    const done = await end(id);
    expect(done).toMatchObject({ state: 'READY', reason: null, rows: 3000 });
    const { data } = await team.gql(SHOW, { name: 'wine' });
    expect(data.dataset.newest).toMatchObject({ version: done.version, rows: 3000, source: 'wine.csv', schema: { label: 'kind' } });
    expect(await store().list(`datasets/${team.teamId}/uploads/`)).toEqual([]);
  });

  it('fails with the row and the column of what is wrong', async () => {
    const { body } = await sendFile('holes.csv', 'a,b\n1,2\n3,\n');
    const { data } = await team.gql(IMPORT, { name: 'holes', uploads: [body.id] });
    expect(await end(data.importDataset.import.id)).toMatchObject({
      state: 'FAILED',
      reason: expect.stringMatching(/^[A-Z_]+: holes\.csv, row 2, column "b"/), // and not where the api keeps it
    });
  });

  it('is not one of this network', async () => {
    const { data } = await team.gql(IMPORT, {
      name: 'inside',
      url: `${plane.api.url.replace('http:', 'https:')}/healthz`,
      options: { format: 'csv' },
    });
    expect(await end(data.importDataset.import.id)).toMatchObject({
      state: 'FAILED',
      reason: expect.stringMatching(/^SOURCE_FORBIDDEN: .*private network/),
    });
    const other = await team.gql(IMPORT, { name: 'other', url: 'https://data.example.com/a.csv?signature=let-me-in' });
    const { id } = other.data.importDataset.import;
    expect(await end(id)).toMatchObject({
      state: 'FAILED',
      reason: expect.stringMatching(/^SOURCE_FORBIDDEN: .*not one of those that may be asked/),
    });
    // What lets read there is not kept, and the row goes a day after the last key that may answer with it.
    const [database, sweep] = [plane.api.app.get(Database), plane.api.app.get(DataSweep)];
    const row = await database.datasetImport.findUniqueOrThrow({ where: { id } });
    expect(JSON.stringify([row.request, row.reason])).not.toContain('let-me-in');
    expect(row.request).toMatchObject({ sources: ['https://data.example.com/a.csv'] });
    const longAgo = (days: number) => new Date(Date.now() - days * 86_400_000);
    await database.datasetImport.update({ where: { id }, data: { finishedAt: longAgo(30.5) } });
    await sweep.sweep();
    expect(await database.datasetImport.count({ where: { id } })).toBe(1);
    await database.datasetImport.update({ where: { id }, data: { finishedAt: longAgo(31.5) } });
    await sweep.sweep();
    expect(await database.datasetImport.count({ where: { id } })).toBe(0);
  });

  it('keeps what the import warns of, and reads decimal commas where it is told to', async () => {
    const warned = await sendFile('prices.csv', 'price;size\n1,5;2\n2,25;3\n');
    const { id } = (await team.gql(IMPORT, { name: 'prices', uploads: [warned.body.id] })).data.importDataset.import;
    expect(await end(id)).toMatchObject({ state: 'READY', reason: expect.stringMatching(/^Column "price" holds numbers such as "1,5"/) });
    const told = await sendFile('prices.csv', 'price;size\n1,5;2\n2,25;3\n');
    const options = { decimal: ',', delimiter: ';', oneSeries: true };
    const again = (await team.gql(IMPORT, { name: 'prices', uploads: [told.body.id], options })).data.importDataset.import;
    expect(await end(again.id)).toMatchObject({ state: 'READY', reason: null });
    const wrong = await team.gql(IMPORT, { name: 'prices', uploads: [told.body.id], options: { decimal: ';' } });
    expect(wrong.data.importDataset.issues).toEqual([{ path: 'options.decimal', message: 'must be . or ,' }]);
  });

  it('is refused at once when what is asked for is wrong', async () => {
    const wrong = await team.gql(IMPORT, { name: 'mnist', url: 'file:///etc/passwd' });
    expect(wrong.data.importDataset.issues[0].path).toBe('url');
    const gone = await team.gql(IMPORT, { name: 'x', uploads: ['01234567-89ab-7cde-8f01-23456789abcd'] });
    expect(gone.data.importDataset.__typename).toBe('NotFound');
  });
});

describe('an import in an odd state', () => {
  it('takes several files of one name, whose name is long', async () => {
    const name = `${'ü'.repeat(60)}.csv`;
    const ids: string[] = [];
    for (const rows of ['a,b\n1,2\n3,4\n', 'a,b\n5,6\n7,8\n']) {
      const { body } = await team
        .post(`/api/v1/datasets/uploads?name=${encodeURIComponent(name)}`)
        .set('content-type', 'text/csv')
        .send(rows);
      ids.push(body.id);
    }
    const { data } = await team.gql(
      'mutation($uploads: [ID!]) { importDataset(name: "twins", uploads: $uploads) { __typename ... on ImportDatasetSuccess { import { id } } } }',
      { uploads: ids },
    );
    const { id } = data.importDataset.import;
    const done = await until('the end of the import', async () => {
      const found = (await team.gql('query($id: ID!) { datasetImport(id: $id) { state reason rows } }', { id })).data.datasetImport;
      return ['READY', 'FAILED'].includes(found.state) && found;
    });
    expect(done).toMatchObject({ state: 'READY', reason: null });
    expect((await team.gql(SHOW, { name: 'twins' })).data.dataset.newest.rows).toBe(4);
  });

  it('changes nothing of an import that another api has taken over', async () => {
    const [database, shards] = [plane.api.app.get(Database), plane.api.app.get(DatasetShards)];
    const { body } = await team.post('/api/v1/datasets/uploads?name=a.csv').set('content-type', 'text/csv').send('a,b\n1,2\n3,4\n');
    const begun = vi.spyOn(shards, 'announce').mockImplementationOnce(async (by, sha256, bytes) => {
      await database.datasetImport.updateMany({ where: { name: 'taken' }, data: { attempts: 2, beatAt: new Date() } });
      return shards.announce(by, sha256, bytes);
    });
    const { data } = await team.gql(
      'mutation($uploads: [ID!]) { importDataset(name: "taken", uploads: $uploads) { ... on ImportDatasetSuccess { import { id } } } }',
      { uploads: [body.id] },
    );
    const { id } = data.importDataset.import;
    await until('the import is given up here', () =>
      Promise.resolve(begun.mock.calls.length > 0 && !plane.api.app.get(DatasetImports).carriesOut(id)),
    );
    expect(await database.datasetImport.findUniqueOrThrow({ where: { id } })).toMatchObject({
      state: 'IMPORTING',
      attempts: 2,
      version: null,
    });
    expect(await database.teamDataset.count({ where: { name: 'taken' } })).toBe(0);
    await database.datasetImport.update({ where: { id }, data: { state: 'FAILED' } });
  });
});

describe('removing', () => {
  it('removes one version, then the dataset, and a day later the shards that nobody names', async () => {
    const prepared = flowers(12, 50);
    const version = await upload(team, 'short-lived', prepared);
    await upload(team, 'short-lived', flowers());
    const one = await team.gql(REMOVE, { dataset: `short-lived@${version.slice(0, 12)}` });
    expect(one.data.removeDataset).toEqual({ __typename: 'RemoveDatasetSuccess', name: 'short-lived', versions: [version] });
    expect((await others.gql(REMOVE, { dataset: 'short-lived' })).data.removeDataset.__typename).toBe('NotFound');
    const sweep = plane.api.app.get(DataSweep);
    const keys = [...prepared.shards.keys()].map((hash) => datasetShardKey(team.teamId, hash));
    await sweep.sweep();
    expect((await store().list(keys[0]!)).length).toBe(1);
    await sweep.sweep(new Date(Date.now() + 86_400_000 + 60_000));
    for (const key of keys) expect(await store().list(key)).toEqual([]);
    // What another version names stays.
    const kept = [...flowers().shards.keys()][0]!;
    expect((await team.head(`/api/v1/datasets/shards/${kept}`)).status).toBe(200);
    expect((await team.gql(REMOVE, { dataset: 'short-lived' })).data.removeDataset.__typename).toBe('RemoveDatasetSuccess');
    expect((await team.gql(SHOW, { name: 'short-lived' })).data.dataset).toBeNull();
  });

  it('removes a manifest with the last version that has it', async () => {
    const prepared = flowers(6, 60);
    const version = await upload(team, 'one-name', prepared);
    await upload(team, 'another-name', prepared);
    const manifests = async () => (await store().list(datasetManifestKey(team.teamId, version))).length;
    await team.gql(REMOVE, { dataset: 'one-name' });
    expect(await manifests()).toBe(1);
    await team.gql(REMOVE, { dataset: 'another-name' });
    await vi.waitFor(async () => expect(await manifests()).toBe(0), { timeout: 30_000 });
    // What was left by a commit that came to nothing, of a team that is busy.
    await upload(team, 'kept-name', flowers(6, 61));
    const left = Array.from({ length: 25 }, (_, i) => datasetManifestKey(team.teamId, String(i).padStart(64, '0')));
    for (const key of left) await store().put(key, [Buffer.from('{}')]);
    const before = (await store().list(`datasets/${team.teamId}/manifests/`)).length;
    await plane.api.app.get(DataSweep).sweep();
    expect((await store().list(`datasets/${team.teamId}/manifests/`)).length).toBe(before - left.length);
    expect((await team.get('/api/v1/datasets/kept-name/manifest')).status).toBe(200);
  });

  it('puts a manifest into the store again that was removed before its version was there', async () => {
    const { put } = ManifestChild.prototype;
    const removed = vi.spyOn(ManifestChild.prototype, 'put').mockImplementationOnce(async function (this: ManifestChild, ...of) {
      await put.apply(this, of);
      await plane.api.app.get(DataSweep).sweep();
    });
    await upload(team, 'raced', flowers(6, 62));
    expect(removed).toHaveBeenCalledTimes(2);
    removed.mockRestore();
    expect((await team.get('/api/v1/datasets/raced/manifest')).status).toBe(200);
  });

  it('says of no shard that it is there whose object may be gone', async () => {
    const [[hash, bytes]] = [...flowers(30, 90).shards] as [[string, Buffer]];
    await putShard(team, hash, bytes);
    const objects = plane.api.app.get(DataStore).store;
    const broken = vi.spyOn(objects, 'remove').mockImplementation(async (keys) => {
      await store().remove(keys);
      throw new Error('the answer was lost');
    });
    await expect(plane.api.app.get(DataSweep).sweep(new Date(Date.now() + 86_400_000 + 60_000))).rejects.toThrow('was lost');
    broken.mockRestore();
    expect((await team.head(`/api/v1/datasets/shards/${hash}`)).status).toBe(404);
    expect((await putShard(team, hash, bytes)).status).toBe(201);
    // Somebody else took it out of the store: an answer that is no half of a file.
    await store().remove([datasetShardKey(team.teamId, hash)]);
    expect((await team.get(`/api/v1/datasets/shards/${hash}`)).body).toMatchObject({ code: 'NOT_FOUND' });
  });

  it('asks over REST for a yes or a no', async () => {
    expect((await team.post('/api/v1/datasets/iris/remove?force=1')).body).toMatchObject({
      code: 'INVALID_INPUT',
      issues: [{ path: 'force' }],
    });
  });

  it('keeps files that an import waits for', async () => {
    const [database, sweep] = [plane.api.app.get(Database), plane.api.app.get(DataSweep)];
    const { teamId } = team;
    const touchedAt = new Date(Date.now() - 2 * 86_400_000);
    const { id } = await database.datasetUpload.create({ data: { teamId, fileName: 'a.csv', bytes: 1n, isComplete: true, touchedAt } });
    // Another api carries it out.
    const of = { teamId, name: 'a', request: { sources: [], uploads: [id], options: {} }, createdBy: id };
    const made = await database.datasetImport.create({ data: Object.assign({ state: 'IMPORTING' as const, beatAt: new Date() }, of) });
    await sweep.sweep();
    expect(await database.datasetUpload.count({ where: { id, isComplete: true } })).toBe(1);
    await database.datasetImport.update({ where: { id: made.id }, data: { state: 'FAILED' } });
    await sweep.sweep();
    expect(await database.datasetUpload.count({ where: { id } })).toBe(0);
  });
});
