/** Exports of models that were trained on a dataset of the team, whose manifest may be large. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Preprocessing } from '@paceline/models';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { archiveOf, storeWeightsOf } from './made-up-results.js';
import { flowers, upload } from './prepared.js';
import { ControlPlane, createRun, until, type Caller } from './services.js';

let plane: ControlPlane;
let caller: Caller;
beforeAll(async () => {
  plane = await ControlPlane.start();
  caller = await plane.team('exports');
});
afterAll(() => plane?.stop());

const json = <T>(files: Map<string, Buffer>, name: string): T => JSON.parse(files.get(name)!.toString()) as T;

it.each([3, 80_000])('is exported with what is done to its rows (%i words)', async (words) => {
  const { manifest, shards } = flowers(6, words);
  const columns = manifest.columns.map((column) => {
    if (column.kind !== 'category') return column;
    const vocabulary = [...column.vocabulary, ...Array.from({ length: words - 3 }, (_, i) => `another ${i}`)];
    return Object.assign({}, column, {
      vocabulary,
      statistics: Object.assign({}, column.statistics, { counts: vocabulary.map((_, code) => (code < 3 ? 2 : 1)) }),
    });
  });
  const name = `flowers-${words}`;
  await upload(caller, name, { manifest: Object.assign({}, manifest, { columns, label: 'size' }), shards });
  const features = {
    inputs: { colour: [{ kind: 'category', column: 'colour', encode: 'index' }] },
    targets: { y: { kind: 'number', columns: ['size'], scale: 'standard' } },
  };
  const layers = [
    { class_name: 'Embedding', config: { batch_input_shape: [null, 1], input_dim: words, output_dim: 1 } },
    { class_name: 'Flatten', config: {} },
    { class_name: 'Dense', config: { units: 1 } },
  ];
  const modelTopology = { class_name: 'Sequential', config: { layers } };
  const id = await createRun(caller, { name, dataset: name, features, modelTopology, globalBatch: 4, replicas: 2 });
  await storeWeightsOf(plane, id);
  const files = await archiveOf(caller, id);
  const preprocessing = json<Preprocessing>(files, 'preprocessing.json');
  const [encoder] = preprocessing.plan!.inputs[0]!.encoders;
  expect(encoder!.kind === 'index' && encoder!.names).toHaveLength(words);
  expect(preprocessing.outputs).toMatchObject([{ kind: 'values', name: 'size' }]);
  expect(json<{ userDefinedMetadata: object }>(files, 'model.json').userDefinedMetadata).toMatchObject({
    paceline: { outputs: [{ name: 'size', kind: 'values', size: 1 }] },
  });
  const { data } = await caller.gql('query($id: ID!) { run(id: $id) { targetScales { target factors } } }', { id });
  expect(data.run.targetScales).toEqual([{ target: 'size', factors: [expect.closeTo(Math.sqrt(35 / 12), 4)] }]);
  const folder = join(plane.dataDir, 'exports');
  await until('the folder of the archive to be removed', () => !existsSync(folder) || readdirSync(folder).length === 0);
});
