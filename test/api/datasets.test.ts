/** Datasets of teams over REST and GraphQL: uploads, commits, what is seen, and what is refused. */
import { Database } from '../../apps/api/src/database/database.js';
import { CommitVersion } from '../../apps/api/src/datasets/commit-version.js';
import { schemaOf } from '../../apps/api/src/datasets/dataset-schema.js';
import { canonicalJson } from '@paceline/storage';
import { openStore } from '@paceline/storage';
import { BUILT_IN_DATASETS, datasetShardKey } from '@paceline/spec';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { commit, flowers, putShard, safetensors, sha256, upload } from './prepared.js';
import { ControlPlane, CREATE_RUN, until, type Caller } from './services.js';

let plane: ControlPlane;
let team: Caller & { teamId: string };
let others: Caller & { teamId: string };
beforeAll(async () => {
  plane = await ControlPlane.start({ settings: { importHosts: ['127.0.0.1', '*.example.org'] } });
  [team, others] = await Promise.all([plane.team('flowers'), plane.team('others')]);
});
afterAll(() => plane.stop());

const LIST = `{ datasets { totalCount edges { node { id name isBuiltIn trainExamples evalExamples newest { version rows } } } } }`;
const SHOW = `query($name: String!) { dataset(name: $name) { name trainExamples newest { version rows bytes source
  schema { label untrainedClasses isOrdered splits { name rows shards } columns { name kind vocabularySize vocabulary statistics } }
  preview(rows: 4, from: 2) { columns rows } } versions { version } runs { id } } }`;
const REMOVE = `mutation($dataset: String!, $force: Boolean) { removeDataset(dataset: $dataset, force: $force) { __typename
  ... on RemoveDatasetSuccess { name versions } ... on Conflict { message } ... on NotFound { message } } }`;
const store = () => openStore(join(plane.folder, 'datasets'));

describe('uploading', () => {
  it('stores a shard under its hash, once', async () => {
    const [[hash, bytes]] = [...flowers(6, 100).shards] as [[string, Buffer]];
    expect((await team.head(`/api/v1/datasets/shards/${hash}`)).status).toBe(404);
    expect((await putShard(team, hash, bytes)).status).toBe(201);
    expect((await putShard(team, hash, bytes)).status).toBe(200);
    const head = await team.head(`/api/v1/datasets/shards/${hash}`);
    expect([head.status, head.headers['content-length']]).toEqual([200, String(bytes.length)]);
    const got = await team.get(`/api/v1/datasets/shards/${hash}`).buffer(true).responseType('blob');
    expect(Buffer.compare(got.body as Buffer, bytes)).toBe(0);
    expect((await others.head(`/api/v1/datasets/shards/${hash}`)).status).toBe(404);
    expect((await others.get(`/api/v1/datasets/shards/${hash}`)).status).toBe(404);
  });

  it('refuses bytes of another hash, and leaves nothing of them', async () => {
    const wrong = sha256(Buffer.from('other'));
    const { status, body } = await putShard(team, wrong, Buffer.from('bytes'));
    expect([status, body.code]).toEqual([422, 'INVALID_INPUT']);
    expect((await team.head(`/api/v1/datasets/shards/${wrong}`)).status).toBe(404);
    expect(await store().list(datasetShardKey(team.teamId, wrong))).toEqual([]);
  });

  it('refuses what passes the limit of the team', async () => {
    const small = await plane.team('small');
    await plane.admin.gql('mutation($id: ID!) { setTeamLimits(teamId: $id, limits: { datasetBytes: 1000 }) { __typename } }', {
      id: small.teamId,
    });
    const bytes = Buffer.alloc(1001);
    const { status, body } = await putShard(small, sha256(bytes), bytes);
    expect([status, body.code]).toEqual([409, 'LIMIT_REACHED']);
    expect(body.detail).toContain('1000 bytes of datasets');
    // A row that an upload of other bytes has left counts with what is claimed now.
    expect((await putShard(small, sha256(bytes), Buffer.from('1'))).status).toBe(422);
    expect((await putShard(small, sha256(bytes), bytes)).body.code).toBe('LIMIT_REACHED');
    expect((await putShard(small, sha256(bytes.subarray(1)), bytes.subarray(1))).body.code).toBe('LIMIT_REACHED');
  });

  it('takes no octets where JSON belongs', async () => {
    const { status, body } = await team.post('/api/v1/runs').set('content-type', 'application/octet-stream').send('x');
    expect([status, body.code]).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
  });
});

describe('committing', () => {
  it('makes a version that the team sees and nobody else', async () => {
    const prepared = flowers();
    const version = await upload(team, 'flowers', prepared);
    expect(version).toBe(sha256(Buffer.from(canonicalJson(prepared.manifest))));
    const { data } = await team.gql(LIST);
    const nodes = data.datasets.edges.map(({ node }: { node: { name: string } }) => node);
    expect(nodes.map(({ name }: { name: string }) => name)).toEqual([...[...BUILT_IN_DATASETS].sort(), 'flowers']);
    expect(nodes.at(-1)).toMatchObject({
      isBuiltIn: false,
      trainExamples: 6,
      evalExamples: 3,
      newest: { version, rows: 9 },
    });
    expect((await others.gql(LIST)).data.datasets.totalCount).toBe(BUILT_IN_DATASETS.length);
    expect((await others.gql(SHOW, { name: 'flowers' })).data.dataset).toBeNull();
    expect((await others.get('/api/v1/datasets/flowers/manifest')).status).toBe(404);
    const text = await team.get('/api/v1/datasets/flowers/manifest');
    expect(text.text).toBe(canonicalJson(prepared.manifest));
    expect(text.headers).toMatchObject({ etag: `"${version}"`, 'x-dataset-version': version });
    const { id } = nodes.at(-1);
    const node = 'query($id: ID!) { node(id: $id) { __typename id } }';
    expect((await team.gql(node, { id })).data.node).toEqual({ __typename: 'Dataset', id });
    expect((await others.gql(node, { id })).data.node).toBeNull();
  });

  it('lists datasets without their manifests, and reads none on the loop of the api', async () => {
    const prepared = flowers(8, 50);
    const parsed = vi.spyOn(JSON, 'parse');
    const version = await upload(team, 'unread', prepared).finally(() => parsed.mockRestore());
    const texts = parsed.mock.calls.map(([text]) => String(text));
    expect(texts.filter((text) => text.includes('paceline.dataset'))).toEqual([]);
    const database = plane.api.app.get(Database);
    const stored = await database.datasetVersion.findFirstOrThrow({ where: { version } });
    expect(stored.manifest).toEqual(JSON.parse(canonicalJson(prepared.manifest)));
    expect(Number(stored.manifestBytes)).toBe(Buffer.byteLength(canonicalJson(prepared.manifest)));
    await database.datasetVersion.update({ where: { id: stored.id }, data: { manifest: {} } });
    const { data } = await team.gql(LIST);
    const listed = data.datasets.edges.find(({ node }: { node: { name: string } }) => node.name === 'unread').node;
    expect(listed).toMatchObject({ trainExamples: 8, evalExamples: 3 });
    await team.gql(REMOVE, { dataset: 'unread' });
  });

  it('refuses a manifest that passes the limit of the team', async () => {
    const full = await plane.team('full');
    const { manifest, shards } = flowers();
    for (const [hash, bytes] of shards) await putShard(full, hash, bytes);
    const held = [...shards.values()].reduce((sum, { length }) => sum + length, 0);
    const size = Buffer.byteLength(canonicalJson(manifest));
    const limit = (datasetBytes: number) =>
      plane.admin.gql(
        'mutation($id: ID!, $datasetBytes: Float) { setTeamLimits(teamId: $id, limits: { datasetBytes: $datasetBytes }) { __typename } }',
        { id: full.teamId, datasetBytes },
      );
    await limit(held + size - 1);
    const { status, body } = await commit(full, 'full', manifest);
    expect([status, body.code]).toEqual([409, 'LIMIT_REACHED']);
    expect(await store().list(`datasets/${full.teamId}/manifests/`)).toEqual([]);
    await limit(held + size);
    expect((await commit(full, 'full', manifest)).status).toBe(201);
  });

  it('shows columns, statistics and rows', async () => {
    const { data, errors } = await team.gql(SHOW, { name: 'flowers' });
    expect(errors).toBeUndefined();
    const { schema, preview } = data.dataset.newest;
    expect(schema).toMatchObject({
      label: 'colour',
      untrainedClasses: [],
      splits: [
        { name: 'train', rows: 6, shards: 2 },
        { name: 'test', rows: 3, shards: 1 },
      ],
    });
    expect(schema.columns[1]).toEqual({
      name: 'colour',
      kind: 'category',
      vocabularySize: 3,
      vocabulary: ['red', 'blue', 'white'],
      statistics: { count: 6, missing: 0, counts: [2, 2, 2] },
    });
    expect(preview).toEqual({
      columns: ['size', 'colour', 'note'],
      rows: [
        [2, 'white', 'note 2'],
        [3, 'red', 'note 3'],
        [4, 'blue', 'note 4'],
        [5, 'white', 'note 5'],
      ],
    });
    // Of two rows to train on none is white; the test split has some.
    expect(schemaOf(flowers(2).manifest, 1, 0).untrainedClasses).toEqual(['white']);
  });

  it('knows equal content again, and takes it as the newest', async () => {
    const [first, second] = [flowers(), flowers(8, 1)];
    const other = await upload(team, 'flowers', second);
    expect((await team.gql(SHOW, { name: 'flowers' })).data.dataset.newest.version).toBe(other);
    const again = await commit(team, 'flowers', first.manifest);
    expect(again.status).toBe(200);
    const { data } = await team.gql(SHOW, { name: 'flowers' });
    expect(data.dataset.versions.map((row: { version: string }) => row.version)).toEqual([again.body.version, other]);
  });

  it('refuses a manifest whose shards were not uploaded, naming them', async () => {
    const { manifest } = flowers(10, 2);
    const { status, body } = await commit(team, 'missing', manifest);
    expect(status).toBe(422);
    expect(body.issues[0]).toEqual({ path: 'splits.train.shards.0', message: expect.stringMatching(/was not uploaded$/) });
    // Another team's shards are not there.
    expect((await commit(others, 'flowers', flowers().manifest)).status).toBe(422);
    expect((await team.gql(SHOW, { name: 'missing' })).data.dataset).toBeNull();
  });

  it.each<[string, string, () => unknown, RegExp]>([
    ['another name', 'mnist', () => flowers().manifest, /built-in/],
    ['a name that is none', 'No', () => flowers().manifest, /must be a name/],
    ['a field too many', 'x', () => Object.assign({ more: 1 }, flowers().manifest), /more/],
    ['no JSON', 'x', () => 'text', /must be an object/],
  ])('refuses %s', async (_, name, manifest, why) => {
    const { status, body } = await commit(team, name, manifest());
    expect(status).toBe(422);
    expect(body.detail).toMatch(why);
  });

  it.each<[string, (tensors: Parameters<typeof safetensors>[0]) => Parameters<typeof safetensors>[0], RegExp]>([
    [
      'a code beyond the vocabulary',
      (t) => Object.assign({}, t, { colour: { dtype: 'I32', shape: [2], data: Int32Array.of(0, 3) } }),
      /code 3 in "colour"/,
    ],
    ['a missing column', ({ size: _, ...rest }) => rest, /lacks "size"/],
    ['a column too many', (t) => Object.assign({ more: t['size']! }, t), /"more", which is no column/],
    [
      'another type',
      (t) => Object.assign({}, t, { size: { dtype: 'F64', shape: [2], data: new Float64Array(2) } }),
      /F64 \[2\]; by the manifest it is F32/,
    ],
    [
      'offsets that fall',
      (t) => Object.assign({}, t, { 'note:offsets': { dtype: 'I64', shape: [3], data: BigInt64Array.of(0n, 5n, 4n) } }),
      /offsets" that fall/,
    ],
    [
      'offsets past the end',
      (t) => Object.assign({}, t, { 'note:offsets': { dtype: 'I64', shape: [3], data: BigInt64Array.of(0n, 2n, 90n) } }),
      /end with 90/,
    ],
  ])('refuses a shard with %s', async (_, change, why) => {
    const tensors = {
      size: { dtype: 'F32', shape: [2], data: Float32Array.of(1, 2) },
      colour: { dtype: 'I32', shape: [2], data: Int32Array.of(0, -1) },
      note: { dtype: 'U8', shape: [4], data: Buffer.from('abcd') },
      'note:offsets': { dtype: 'I64', shape: [3], data: BigInt64Array.of(0n, 2n, 4n) },
    };
    const bytes = safetensors(change(tensors));
    const { manifest } = flowers();
    const shard = { sha256: sha256(bytes), rows: 2, bytes: bytes.length };
    await putShard(team, shard.sha256, bytes);
    const { status, body } = await commit(team, 'bad', Object.assign({}, manifest, { splits: { train: { rows: 2, shards: [shard] } } }));
    expect(status).toBe(422);
    expect(body.issues).toEqual([{ path: 'splits.train.shards.0', message: expect.stringMatching(why) }]);
  });
});

describe('committing at once', () => {
  it('lets one team not keep the others from it', async () => {
    const prepared = flowers(12, 400);
    await upload(team, 'many', prepared);
    const asked = await Promise.all([1, 2, 3, 4].map((i) => commit(team, `many-${i}`, prepared.manifest)));
    expect(asked.map(({ status }) => status)).toEqual([201, 201, 201, 201]);
    const commits = plane.api.app.get(CommitVersion);
    const by = { teamId: team.teamId, apiKeyId: team.teamId };
    const manifest = Buffer.from(JSON.stringify(prepared.manifest));
    const many = Array.from({ length: 30 }, () => commits.commit(by, { name: 'many', manifest, source: '' }));
    const settled = Promise.allSettled(many);
    await upload(others, 'free', flowers());
    const codes = (await settled).map((one) => (one.status === 'rejected' ? (one.reason as { code: string }).code : 'done'));
    expect(new Set(codes)).toEqual(new Set(['done', 'TOO_BUSY']));
    expect((await others.gql(REMOVE, { dataset: 'free' })).data.removeDataset.__typename).toBe('RemoveDatasetSuccess');
  });

  it('takes a shard that is named often', async () => {
    const { manifest } = flowers(12, 400);
    const [shard] = manifest.splits.train!.shards;
    const often = Object.assign({}, manifest, {
      splits: { train: { rows: shard!.rows * 50, shards: Array.from({ length: 50 }, () => shard) } },
    });
    const { status, body } = await commit(team, 'often', often);
    expect([status, body.rows]).toEqual([201, shard!.rows * 50]);
  });
});

describe('runs on datasets of the team', () => {
  it('refuses unknown names, and says which was meant', async () => {
    const { data } = await team.gql(CREATE_RUN, { spec: { dataset: 'flowrs' } });
    expect(data.createRun.issues).toEqual([{ path: 'dataset', message: 'there is no dataset "flowrs": did you mean flowers?' }]);
    expect((await others.gql(CREATE_RUN, { spec: { dataset: 'flowers' } })).data.createRun.issues[0].message).toBe(
      `there is no dataset "flowers"; there are ${BUILT_IN_DATASETS.join(', ')}`,
    );
    expect((await team.gql(CREATE_RUN, { spec: { dataset: 'flowers@00000000' } })).data.createRun.issues[0].message).toMatch(
      /no version that begins/,
    );
  });
});

describe('a run on a dataset of the team', () => {
  const features = { inputs: { size: [{ kind: 'number', columns: ['size'] }] } };
  const CANCEL = 'mutation($id: ID!) { cancelRun(id: $id) { __typename } }';

  it('keeps to the version that was the newest, and keeps it from being removed', async () => {
    const version = await upload(team, 'kept', flowers(20, 7));
    const { data } = await team.gql(CREATE_RUN, { spec: { dataset: 'kept', features, globalBatch: 4, replicas: 2 } });
    expect(data.createRun).toMatchObject({ __typename: 'CreateRunSuccess', run: { spec: { dataset: `kept@${version}`, features } } });
    const { id } = data.createRun.run;
    const stored = await plane.api.app.get(Database).run.findUniqueOrThrow({ where: { id } });
    expect(stored.data).toMatchObject({
      source: { kind: 'prepared', teamId: team.teamId, version },
      format: { inputs: [{ name: 'size', shape: [1] }], targets: [{ kind: 'classes', classes: 3 }] },
      trainExamples: 20,
      evalExamples: 3,
    });
    await upload(team, 'kept', flowers(21, 7));
    expect((await team.gql(SHOW, { name: 'kept' })).data.dataset.runs).toEqual([{ id }]);
    const refused = await team.gql(REMOVE, { dataset: 'kept', force: true });
    expect(refused.data.removeDataset).toMatchObject({ __typename: 'Conflict', message: expect.stringContaining(id) });
    await team.gql(CANCEL, { id });
    await until(
      'the end of the run',
      async () => (await team.gql('query($id: ID!) { run(id: $id) { status } }', { id })).data.run.status === 'CANCELLED',
    );
    const over = await team.gql(REMOVE, { dataset: `kept@${version.slice(0, 8)}` });
    expect(over.data.removeDataset.message).toMatch(new RegExp(`are over were trained on it.*${id}.*force`));
    // What its predictions show of the data goes with it.
    const predictions = join(plane.dataDir, 'runs', id as string, 'predictions');
    mkdirSync(predictions, { recursive: true });
    writeFileSync(join(predictions, 'any.json'), '{}');
    expect((await team.gql(REMOVE, { dataset: 'kept', force: true })).data.removeDataset.versions).toHaveLength(2);
    await until('the predictions to be removed', () => !existsSync(join(predictions, 'any.json')));
    // As if it had been done when it was over.
    await plane.api.app.get(Database).run.update({ where: { id }, data: { status: 'SUCCEEDED', cancelRequestedAt: null } });
    const EXTEND = `mutation($id: ID!) { extendRun(id: $id, rounds: 1) { __typename ... on Conflict { message } } }`;
    expect((await team.gql(EXTEND, { id })).data.extendRun.message).toMatch(/^The dataset of this run was removed/);
    expect((await team.gql('query($id: ID!) { run(id: $id) { id spec } }', { id })).data.run.spec.dataset).toBe(`kept@${version}`);
  });

  it('says where features name what is not there', async () => {
    const wrong = { inputs: { size: [{ kind: 'number', columns: ['sise'] }] } };
    const { data } = await team.gql(CREATE_RUN, { spec: { dataset: 'flowers', features: wrong } });
    expect(data.createRun.issues[0]).toMatchObject({
      path: expect.stringMatching(/^features\.inputs\.size/),
      message: expect.stringContaining('sise'),
    });
    const fixed = await team.gql(CREATE_RUN, { spec: { dataset: 'mnist', features } });
    expect(fixed.data.createRun.issues[0].path).toBe('features');
  });

  it('keeps the vocabulary of a text that was made for it', async () => {
    const words = { inputs: { note: [{ kind: 'text', column: 'note', length: 4, encode: 'multi-hot' }] } };
    const { data } = await team.gql(CREATE_RUN, { spec: { dataset: 'flowers', features: words, globalBatch: 4, replicas: 2 } });
    expect(data.createRun.run.spec.features.inputs.note[0].vocabulary).toContain('note');
    await team.gql(CANCEL, { id: data.createRun.run.id });
  });
});
