/** Exports of trained models over REST: which weights, which forms, whose runs. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { createLayout } from '@paceline/learning';
import type { ModelCard, Preprocessing } from '@paceline/models';
import type { ModelDescription } from '@paceline/spec';
import { Checkpoints, initialWeightsKey, openStore, safetensorsHeader, StorageError, unclaimedWeightsPrefix } from '@paceline/storage';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import { CheckpointStore } from '../../apps/api/src/models/checkpoint-store.js';
import { InitialWeights, type WarmStart } from '../../apps/api/src/models/initial-weights.js';
import { WeightUploads } from '../../apps/api/src/models/weight-uploads.js';
import { sha256 as hashOf } from './prepared.js';
import { Predictions } from '../../apps/api/src/http/bodies.js';
import { uuidv7 } from '../../apps/api/src/text-input.js';
import { isDescribed } from './described.js';
import { archiveOf, storeWeightsOf, succeedWith } from './made-up-results.js';
import { ControlPlane, createRun, until, type Caller } from './services.js';

let plane: ControlPlane;
let caller: Caller;
let other: Caller;
let runId: string;
let flat: Float32Array;
let sha256: string;
const database = (): Database => plane.api.app.get(Database);

beforeAll(async () => {
  plane = await ControlPlane.start();
  [caller, other] = [await plane.team('exports'), await plane.team('others')];
  runId = await createRun(caller, { name: 'to export', modelTopology: TINY });
  await storeWeights(runId, (values, hash) => ([flat, sha256] = [values, hash]));
});
afterAll(() => plane?.stop());

const TINY = {
  class_name: 'Sequential',
  config: {
    layers: [
      { class_name: 'Flatten', config: { batch_input_shape: [null, 28, 28, 1] } },
      { class_name: 'Dense', config: { name: 'few', units: 2, activation: 'relu' } },
      { class_name: 'Dense', config: { name: 'out', units: 10 } },
    ],
  },
};

const storeWeights = (id: string, tell?: (values: Float32Array, hash: string) => void): Promise<void> => storeWeightsOf(plane, id, tell);
const succeed = (rest: object, id = runId): Promise<void> => succeedWith(plane, id, rest);
const archive = (query: string, as = caller, id = runId): Promise<Map<string, Buffer>> => archiveOf(as, id, query);

const json = <T>(files: Map<string, Buffer>, name: string): T => JSON.parse(files.get(name)!.toString()) as T;

describe('a run that has succeeded', () => {
  it('is exported in every form, with a card that names its weights and what they were trained on', async () => {
    const WEIGHTS = { tfjs: 'group1-shard1of1.bin', safetensors: 'model.safetensors', npz: 'weights.npz', keras: 'model.keras' };
    for (const [format, file] of Object.entries(WEIGHTS)) {
      const files = await archive(`?format=${format}`);
      expect([...files.keys()], format).toEqual(expect.arrayContaining([file, 'preprocessing.json', 'model-card.json', 'MODEL_CARD.md']));
      expect(json<ModelCard>(files, 'model-card.json')).toMatchObject({
        round: 9,
        weightsSha256: sha256,
        evaluation: { loss: 0.25, accuracy: 0.75, examples: 10_000, split: 'test' },
        dataset: { name: 'mnist', license: 'CC BY-SA 3.0' },
      });
    }
    const files = await archive('');
    expect(files.get('group1-shard1of1.bin')!.equals(Buffer.from(flat.buffer))).toBe(true);
    expect(json<Preprocessing>(files, 'preprocessing.json')).toMatchObject({
      inputs: [{ image: { height: 28, width: 28, divideBy: 255 } }],
      outputs: [{ gives: 'logits', labels: ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'] }],
    });
    expect(files.get('MODEL_CARD.md')!.toString()).toContain('# to export');
  });

  it('has links to its exports in GraphQL', async () => {
    const { data } = await caller.gql('query($id: ID!) { run(id: $id) { exports { format url } } }', { id: runId });
    expect(data.run.exports[0]).toEqual({ format: 'tfjs', url: `/api/v1/runs/${runId}/export?format=tfjs` });
    expect((await caller.get(data.run.exports[0].url)).status).toBe(200);
  });

  it('is no business of another team, and unknown forms and rounds are refused in words', async () => {
    expect((await other.get(`/api/v1/runs/${runId}/export`)).status).toBe(404);
    const format = await caller.get(`/api/v1/runs/${runId}/export?format=onnx`);
    expect([format.status, format.body.detail]).toEqual([422, expect.stringContaining('tfjs, safetensors, npz, keras')]);
    const round = await caller.get(`/api/v1/runs/${runId}/export?round=4`);
    expect([round.status, round.body.detail]).toEqual([404, expect.stringContaining('checkpoint of round 4')]);
  });

  it('whose stored weights are others than the run says is not handed out whole', async () => {
    const { result } = await database().run.findUniqueOrThrow({ where: { id: runId }, select: { result: true } });
    await succeed(Object.assign({}, result as object, { weightsSha256: 'ab'.repeat(32) }));
    await expect(archive('')).rejects.toThrow();
    await succeed(Object.assign({}, result as object));
  });
});

describe('aliases', () => {
  const SET = `mutation($name: String!, $runId: ID!, $round: Int) { setModelAlias(name: $name, runId: $runId, round: $round) {
    __typename ... on SetModelAliasSuccess { alias { name runId round } } ... on InvalidInput { issues { path } } } }`;
  const list = async (as: Caller) => (await as.gql('{ modelAliases { name runId round } }')).data.modelAliases as unknown[];

  it('name a model of the team, move on to another one, and are removed', async () => {
    const set = await caller.gql(SET, { name: 'digits:best', runId });
    expect(set.data.setModelAlias).toEqual({ __typename: 'SetModelAliasSuccess', alias: { name: 'digits:best', runId, round: null } });
    const next = await createRun(caller, { name: 'next' });
    const both = await Promise.all([1, 2, 3, 4].map(() => caller.gql(SET, { name: 'digits:best', runId: next })));
    for (const { data, errors } of both) expect(data?.setModelAlias.__typename, JSON.stringify(errors)).toBe('SetModelAliasSuccess');
    expect(await list(caller)).toEqual([{ name: 'digits:best', runId: next, round: null }]);
    expect(await list(other)).toEqual([]);
    const remove = 'mutation { removeModelAlias(name: "digits:best") { __typename } }';
    expect((await other.gql(remove)).data.removeModelAlias.__typename).toBe('NotFound');
    expect((await caller.gql(remove)).data.removeModelAlias.__typename).toBe('RemoveModelAliasSuccess');
    expect(await list(caller)).toEqual([]);
  });

  it('name no run of another team, no round without a checkpoint, and are called by two names', async () => {
    const typeOf = async (as: Caller, variables: object) => (await as.gql(SET, variables)).data.setModelAlias.__typename as string;
    expect(await typeOf(other, { name: 'digits:best', runId })).toBe('NotFound');
    expect(await typeOf(caller, { name: 'digits:best', runId, round: 3 })).toBe('NotFound');
    // Nor one of weights that a restore has left behind, whose attempt is none of the run's.
    const left = { runId, attempt: 1, round: 3, bytes: 1n, sha256: 'ef'.repeat(32), reason: 'cadence', createdAt: new Date() };
    await database().attempt.create({ data: { runId, number: 2, parentRunId: runId, parentNumber: 1, parentRound: 2 } });
    await database().run.update({ where: { id: runId }, data: { attempt: 2 } });
    await database().checkpoint.create({ data: left });
    expect(await typeOf(caller, { name: 'digits:best', runId, round: 3 })).toBe('NotFound');
    await database().run.update({ where: { id: runId }, data: { attempt: 1 } });
    expect(await typeOf(caller, { name: 'digits:best', runId, round: 3 })).toBe('SetModelAliasSuccess');
    await caller.gql('mutation { removeModelAlias(name: "digits:best") { __typename } }');
    await database().checkpoint.deleteMany({ where: { runId, round: 3 } });
    await database().attempt.delete({ where: { runId_number: { runId, number: 2 } } });
    for (const name of ['best', 'a:b:c', ':best', 'Digits:best', '-:x'])
      expect(await typeOf(caller, { name, runId }), name).toBe('InvalidInput');
    expect(await list(caller)).toEqual([]);
  });
});

it('a model of a table carries its feature plan, and says what its numbers mean', async () => {
  const layers = [{ class_name: 'Dense', config: { units: 3, activation: 'softmax', batch_input_shape: [null, 4] } }];
  const id = await createRun(caller, {
    name: 'irises',
    dataset: 'iris',
    globalBatch: 20,
    modelTopology: { class_name: 'Sequential', config: { layers } },
  });
  await storeWeights(id);
  const files = await archive('', caller, id);
  const said = json<Preprocessing>(files, 'preprocessing.json');
  expect(said.outputs).toEqual([
    { name: expect.any(String), kind: 'classes', gives: 'probabilities', labels: ['setosa', 'versicolor', 'virginica'] },
  ]);
  expect(said.plan!.inputs[0]!.encoders[0]).toMatchObject({
    kind: 'numbers',
    columns: ['sepal_length', 'sepal_width', 'petal_length', 'petal_width'],
  });
  expect(said.inputOrder).toEqual([0]);
  expect(files.get('predict.mjs')!.toString()).toContain('node predict.mjs rows.csv');
});

describe('predictions of a result', () => {
  const PREDICTIONS = `query($id: ID!) { run(id: $id) { predictions { state reason examples measured split outputs { __typename
    ... on PredictedClasses { name count accuracy labels matrix scores { label count recall } wrongCount columns wrong { example truth prediction probability image cells } } } } } }`;
  let id: string;
  const read = async () => (await caller.gql(PREDICTIONS, { id })).data.run.predictions;
  const ready = () =>
    until('predictions', async () => {
      const found = await read();
      return found.state !== 'COMPUTING' && found;
    });
  const kept = () => join(plane.dataDir, 'runs', id, 'predictions');

  it('are computed when they are looked at first, and kept under the weights and the data', async () => {
    const layers = [{ class_name: 'Dense', config: { units: 3, batch_input_shape: [null, 4] } }];
    id = await createRun(caller, {
      name: 'to ask',
      dataset: 'iris',
      globalBatch: 20,
      modelTopology: { class_name: 'Sequential', config: { layers } },
    });
    expect(await read()).toBeNull();
    expect((await caller.get(`/api/v1/runs/${id}/predictions`)).status).toBe(409);
    await storeWeights(id);
    const first = await caller.get(`/api/v1/runs/${id}/predictions`);
    expect([first.status, first.body.state, first.headers['retry-after']]).toEqual([202, 'COMPUTING', '1']);
    const found = await ready();
    expect(found).toMatchObject({ state: 'READY', reason: null, examples: 30, measured: 30, split: 'test' });
    const [output] = found.outputs;
    expect(output).toMatchObject({
      __typename: 'PredictedClasses',
      name: 'species',
      count: 30,
      labels: ['setosa', 'versicolor', 'virginica'],
      columns: ['sepal_length', 'sepal_width', 'petal_length', 'petal_width'],
    });
    // Made-up weights are wrong somewhere; each row of the matrix has the ten flowers of its species.
    expect(output.matrix.map((row: number[]) => row.reduce((sum, n) => sum + n, 0))).toEqual([10, 10, 10]);
    const right = output.matrix.reduce((sum: number, row: number[], i: number) => sum + row[i]!, 0);
    expect([output.wrongCount, output.accuracy]).toEqual([30 - right, right / 30]);
    expect(output.wrong).toHaveLength(Math.min(24, 30 - right));
    expect(output.wrong[0].cells).toEqual([expect.any(Number), expect.any(Number), expect.any(Number), expect.any(Number)]);
    const rest = await caller.get(`/api/v1/runs/${id}/predictions`);
    expect([rest.status, rest.body.outputs[0].matrix]).toEqual([200, output.matrix]);
    for (const { body } of [first, rest]) isDescribed(Predictions, body);
    expect((await other.get(`/api/v1/runs/${id}/predictions`)).status).toBe(404);
    const ofMany = await caller.gql('{ runs(first: 100) { edges { node { predictions { state } } } } }');
    expect(ofMany.errors?.[0]).toMatchObject({ message: expect.stringContaining('points') });
  });

  it('are made again alike when what was kept is gone, and others are not when the weights are away', async () => {
    const [file] = readdirSync(kept());
    const before = readFileSync(join(kept(), file!));
    writeFileSync(join(kept(), file!), before.subarray(0, 100));
    await ready();
    expect(readFileSync(join(kept(), file!)).equals(before)).toBe(true);
    const { result } = await database().run.findUniqueOrThrow({ where: { id }, select: { result: true } });
    await succeed(Object.assign({}, result as object, { weightsSha256: 'ab'.repeat(32) }), id);
    expect(await ready()).toMatchObject({ state: 'UNAVAILABLE', reason: expect.stringContaining('the run says abab'), outputs: [] });
    expect(readdirSync(kept())).toEqual([file]);
    expect(readdirSync(join(plane.dataDir, 'predictions'))).toEqual([]);
  });
});

it('a checkpoint of a run that was cancelled is exported by its round', async () => {
  await database().run.update({ where: { id: runId }, data: { status: 'CANCELLED' } });
  const { model } = await database().run.findUniqueOrThrow({ where: { id: runId }, select: { model: true } });
  const { chunks } = createLayout(model as unknown as ModelDescription);
  const checkpoints = new Checkpoints(openStore(plane.dataDir));
  const id = { runId, attempt: 1, round: 5 };
  const tensors = chunks.map(({ index, offset, length }) => ({
    name: `parameters/${index}`,
    shape: [length],
    read: () => new Uint8Array(flat.buffer, offset * 4, length * 4),
    done: () => undefined,
  }));
  const shard = await checkpoints.writeShard(id, 0, tensors, { servers: 1 });
  await checkpoints.publish(Object.assign({}, MANIFEST, { runId, attempt: 1, round: 5, shards: [shard] }) as never);
  await database().checkpoint.create({
    data: { runId, attempt: 1, round: 5, bytes: 1n, sha256: 'cd'.repeat(32), loss: 1.5, reason: 'cadence', createdAt: new Date() },
  });
  for (const query of ['', '?round=5']) {
    const files = await archive(query);
    expect(json<ModelCard>(files, 'model-card.json')).toMatchObject({
      round: 5,
      evaluation: null,
      trainingLoss: 1.5,
      weightsSha256: sha256,
    });
  }
});

const MANIFEST = {
  version: 1,
  lineage: [],
  createdAtMs: 0,
  servers: 1,
  replicas: 1,
  layoutHash: 'any',
  chunks: 1,
  configHash: '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',
  config: {},
  mode: 'sync',
  schedule: { totalRounds: 9, roundsPerEpoch: 3 },
  sampler: { epoch: 1, roundInEpoch: 2 },
  ledger: { examples: 50, exceptions: [] },
  optimizer: { name: 'momentum', slots: [] },
  residuals: [],
  loss: 1.5,
  reason: 'cadence',
};

describe('uploaded weights', () => {
  const send = (file: Buffer, as = caller, hash = hashOf(file)) =>
    as.put(`/api/v1/models/weights/${hash}`).set('content-type', 'application/octet-stream').send(file);
  const VARIABLES = [
    { name: 'few/kernel', shape: [784, 2] },
    { name: 'few/bias', shape: [2] },
    { name: 'out/kernel', shape: [2, 10] },
    { name: 'out/bias', shape: [10] },
  ];
  const fileOf = (variables = VARIABLES, change: (values: Float32Array) => void = () => undefined): Buffer => {
    const values = Float32Array.from({ length: variables.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b), 0) }, (_, i) =>
      Math.cos(i),
    );
    change(values);
    return Buffer.concat([safetensorsHeader(variables), Buffer.from(values.buffer)]);
  };
  const begin = (weights: object, as = caller) =>
    as.gql(
      `mutation($spec: RunSpecInput!) { createRun(spec: $spec) { __typename
        ... on CreateRunSuccess { run { id } } ... on InvalidInput { issues { path message } } } }`,
      { spec: { name: 'begins', modelTopology: TINY, weights } },
    );
  const issuesOf = async (weights: object, as = caller) =>
    ((await begin(weights, as)).data.createRun as { issues?: { path: string; message: string }[] }).issues;

  it('are what a run begins with, in a copy of its own', async () => {
    const file = fileOf();
    expect([(await send(file)).status, (await send(file)).status]).toEqual([201, 200]);
    expect((await other.head(`/api/v1/models/weights/${hashOf(file)}`)).status).toBe(404);
    const made = (await begin({ upload: hashOf(file) })).data.createRun as { __typename: string; run: { id: string } };
    expect(made.__typename).toBe('CreateRunSuccess');
    const uploads = plane.api.app.get(WeightUploads);
    expect(await uploads.sweep(Date.now() + 20 * 3_600_000)).toBe(0);
    expect(await uploads.sweep(Date.now() + 30 * 3_600_000)).toBe(1);
    const own = await openStore(plane.dataDir).read(initialWeightsKey(made.run.id));
    expect(Buffer.from(own).subarray(-3176).equals(file.subarray(-3176))).toBe(true);
    expect(await issuesOf({ upload: hashOf(file) })).toMatchObject([
      { path: 'weights.upload', message: expect.stringContaining('send it again') },
    ]);
  });

  it('of a run that was never made, because its api ended, are removed after a day', async () => {
    const initial = plane.api.app.get(InitialWeights);
    const store = openStore(plane.dataDir);
    expect(await store.list(unclaimedWeightsPrefix)).toEqual([]); // the run above has its own
    const start: WarmStart = {
      stored: { round: 0, stream: () => Readable.from([Buffer.alloc(8)]) },
      variables: [{ path: 'out/bias', shape: [2] }],
      taken: new Set(['out/bias']),
    };
    const orphan = uuidv7();
    for (const id of [orphan, runId]) await initial.write(id, start);
    const hour = 3_600_000;
    expect(await initial.sweep(Date.now() + 20 * hour)).toBe(0);
    expect(await initial.sweep(Date.now() + 30 * hour)).toBe(1);
    await expect(store.read(initialWeightsKey(orphan))).rejects.toMatchObject({ code: 'NO_SUCH_OBJECT' });
    expect((await store.read(initialWeightsKey(runId))).length).toBeGreaterThan(8);
    expect(await store.list(unclaimedWeightsPrefix)).toEqual([]);
    await initial.remove(runId);
  });

  it('are refused with the variable, both shapes and what to do', async () => {
    const variables = [{ name: 'few/kernel', shape: [392, 4] }, ...VARIABLES.slice(1, 3)];
    const file = fileOf(variables);
    await send(file).expect(201);
    expect(await issuesOf({ upload: hashOf(file) })).toEqual([
      {
        path: 'weights.reinitialize',
        message: 'variable few/kernel [784, 2] is [392, 4] in the upload: name it here to begin with new values',
      },
      { path: 'weights.reinitialize', message: 'variable out/bias [10] is not in the upload: name it here to begin with new values' },
    ]);
    expect(await issuesOf({ upload: hashOf(file) }, other)).toMatchObject([{ path: 'weights.upload' }]);
    expect(await issuesOf({ upload: hashOf(file), run: runId })).toMatchObject([{ path: 'weights' }]);
    expect(await issuesOf({ upload: hashOf(file), reinitialize: ['few/kernel', 'out/bias'] })).toBeUndefined();
  });

  it.each<[what: string, file: () => Buffer, message: string]>([
    ['NaN', () => fileOf(VARIABLES, (values) => (values[1569] = Number.NaN)), 'element 1 of few/bias is not a finite number'],
    ['an infinite number', () => fileOf(VARIABLES, (values) => (values[1599] = -Infinity)), 'element 9 of out/bias'],
    [
      'a header that is too long for the file',
      () => Buffer.concat([Buffer.from([255, 255, 1, 0, 0, 0, 0, 0]), Buffer.alloc(20)]),
      'claims',
    ],
    ['a file that ends early', () => fileOf().subarray(0, 3000), 'end'],
    [
      'another dtype',
      () => Buffer.concat([safetensorsHeader([{ name: 'a', shape: [1], dtype: 'I32' }]), Buffer.alloc(4)]),
      'a has dtype I32',
    ],
    [
      'a name that is long',
      () => Buffer.concat([safetensorsHeader([{ name: 'n'.repeat(300), shape: [1], dtype: 'I32' }]), Buffer.alloc(4)]),
      `: ${'n'.repeat(200)} has dtype I32`,
    ],
    ['a text', () => Buffer.from('hello, this is no file of weights at all'), 'claims'],
  ])('are no %s', async (_, file, message) => {
    const { status, body } = await send(file());
    expect([status, (body as { code: string }).code]).toEqual([422, 'INVALID_INPUT']);
    expect((body as { detail: string }).detail).toContain(message);
    expect((await caller.head(`/api/v1/models/weights/${hashOf(file())}`)).status).toBe(404);
  });

  it('are refused with what to do when the store has no room', async () => {
    const full = new StorageError('DISK_FULL', 'no space left');
    const broken = vi.spyOn(plane.api.app.get(CheckpointStore).store, 'put').mockRejectedValueOnce(full);
    const { status, body, headers } = await send(fileOf(VARIABLES.slice(1)));
    broken.mockRestore();
    expect([status, (body as { code: string }).code, headers['retry-after']]).toEqual([503, 'SERVICE_UNAVAILABLE', '5']);
    expect((body as { detail: string }).detail).toContain('disk of the checkpoint store is full');
  });

  it('have the hash of their path', async () => {
    expect((await send(fileOf(), caller, 'ab'.repeat(32))).body).toMatchObject({ code: 'INVALID_INPUT' });
    expect((await send(fileOf(), caller, 'none')).body).toMatchObject({ code: 'INVALID_INPUT' });
  });
});
