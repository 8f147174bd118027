/** Runs whose specs are large: lists and the dispatcher read their small parts alone. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BackgroundDatabase, Database } from '../../apps/api/src/database/database.js';
import { readRunsInHand } from '../../apps/api/src/dispatch/runs-in-hand.js';
import { ControlPlane, type Caller } from './services.js';

const RUNS = 5;
const MiB = 1 << 20;

let plane: ControlPlane;
let caller: Caller;
const ids: string[] = [];
beforeAll(async () => {
  plane = await ControlPlane.start();
  caller = await plane.team('large');
  const topology = {
    class_name: 'Sequential',
    config: {
      name: 'sequential',
      layers: [
        { class_name: 'Flatten', config: { name: 'flatten', batch_input_shape: [null, 28, 28, 1] } },
        { class_name: 'Dense', config: { name: 'dense', units: 10, activation: 'softmax' } },
      ],
    },
  };
  for (let i = 0; i < RUNS; i++) {
    const { status, body } = await caller.post('/api/v1/runs').send({ model: { topology }, restarts: 7 });
    expect([status, body.spec?.model]).toEqual([201, { topology }]);
    ids.push(body.id);
  }
  // As large as a spec may be, with characters that jsonb refuses, escaped and as a text that looks like their escape.
  const pad = `{"model": {"pad": "${'x'.repeat(2 * MiB)}", "odd": "\\u0000 \\\\u0000 \\\\\\ud800", `;
  await plane.api.app.get(Database).$executeRaw`UPDATE "Run" SET "spec" = replace("spec"::text, '"model":{', ${pad.slice(1)})::json`;
});
afterAll(() => plane?.stop());

it('the dispatcher reads what it uses of them, and no more', async () => {
  const { rows } = await readRunsInHand(plane.api.app.get(BackgroundDatabase), undefined);
  expect(rows.map(({ id }) => id).sort()).toEqual(ids.slice().sort());
  for (const { spec } of rows) {
    expect(spec).toMatchObject({ strategy: { kind: 'parameter-server' }, replicas: 4, restarts: 7 });
    expect(JSON.stringify(spec).length).toBeLessThan(4_000);
  }
});

it('lists have a short spec, which names the model', async () => {
  const { data, errors } = await caller.gql(
    `{ runs(first: ${RUNS}) { edges { node { shortSpec restartsLeft progress { replicas totalEpochs } } } } }`,
  );
  expect(errors).toBeUndefined();
  for (const { node } of data.runs.edges) {
    expect(node).toMatchObject({ restartsLeft: 7, progress: { replicas: 4, totalEpochs: 5 } });
    expect(node.shortSpec).toMatchObject({ model: '2 layers', dataset: 'mnist', optimizer: { name: 'momentum' }, globalBatch: 256 });
    expect(JSON.stringify(node.shortSpec).length).toBeLessThan(4_000);
  }
});

it('a request has the specs of as many runs as one answer may hold, and is told what to ask for when that is too much', async () => {
  const listed = (first: number) => caller.gql(`{ runs(first: ${first}) { edges { node { id spec } } } }`);
  const { data } = await listed(3);
  expect(data.runs.edges.map(({ node }: { node: { spec: { restarts: number } } }) => node.spec.restarts)).toEqual([7, 7, 7]);
  expect(data.runs.edges[0].node.spec.model.pad).toHaveLength(2 * MiB);
  const { errors } = await listed(RUNS);
  expect(errors?.[0]).toMatchObject({ extensions: { code: 'INVALID_INPUT' }, message: expect.stringContaining('shortSpec') });
  // What was answered is not counted any more.
  for (let i = 0; i < 3; i++) expect((await listed(3)).errors).toBeUndefined();
});
