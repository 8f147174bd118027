/** The form of Keras 3: one `.keras` file, a zip of config.json, metadata.json and model.weights.h5 (keras/src/saving/saving_lib.py). */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type * as h5 from 'h5wasm/node';
import type { LayoutVariable } from '@paceline/learning';
import { zip, type ExportFile } from '../archive.js';
import { jsonOf, textOf } from '../byte-stream.js';
import { ExportError } from '../export-error.js';
import type { ExportParts } from '../export-parts.js';
import { kerasConfig, kerasGroups } from './keras-topology.js';

const KERAS_VERSION = '3.0.0';
/** The library writes the file as a whole. */
const MAX_BYTES = 512 << 20;

export function kerasFiles({ name, plan, variables, weights }: ExportParts): Iterable<ExportFile> {
  const config = kerasConfig(plan, name.replaceAll(/[^\w.-]+/g, '_') || 'model');
  const bytes = variables.reduce((sum, { length }) => sum + length * 4, 0);
  if (bytes > MAX_BYTES)
    throw new ExportError(
      'MODEL_TOO_LARGE',
      `the weights have ${bytes} bytes; a .keras file is written up to ${MAX_BYTES}: use safetensors or npz`,
    );
  async function* files(): AsyncGenerator<ExportFile, void, void> {
    yield { path: 'metadata.json', body: textOf(JSON.stringify({ keras_version: KERAS_VERSION, date_saved: '1980-01-01@00:00:00' })) };
    yield { path: 'config.json', body: textOf(JSON.stringify(config)) };
    const values = new Map<string, Float32Array>();
    for (const variable of variables)
      values.set(variable.path, new Float32Array((await weights.whole(variable.length * 4)).buffer as ArrayBuffer));
    const file = await weightsFile(plan, variables, values);
    yield { path: 'model.weights.h5', body: one(file) };
  }
  return [
    { path: 'model.keras', body: zip(files()) },
    { path: 'config.json', body: jsonOf(config) },
  ];
}

/** The library makes no folders on the way. The first releases of Keras 3 want `vars` in each of them, and at the root. */
function groupAt(file: h5.File, at: string): h5.Group {
  return at.split('/').reduce<h5.Group>((group, name) => {
    if (!group.keys().includes('vars')) group.create_group('vars');
    const found = group.keys().includes(name) ? (group.get(name) as h5.Group | null) : group.create_group(name);
    if (!found) throw new Error(`the group ${at} cannot be made`);
    return found;
  }, file);
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield await Promise.resolve(bytes);
}

async function weightsFile(
  plan: ExportParts['plan'],
  variables: readonly LayoutVariable[],
  values: ReadonlyMap<string, Float32Array>,
): Promise<Uint8Array> {
  const { default: h5wasm } = await import('h5wasm/node');
  await h5wasm.ready;
  const byLayer = new Map<string, LayoutVariable[]>();
  for (const variable of variables) {
    const layer = variable.path.slice(0, variable.path.lastIndexOf('/'));
    byLayer.set(layer, [...(byLayer.get(layer) ?? []), variable]);
  }
  const folder = await mkdtemp(path.join(tmpdir(), 'paceline-keras-'));
  try {
    const target = path.join(folder, 'model.weights.h5');
    const file = new h5wasm.File(target, 'w');
    const counts = new Map([...byLayer].map(([layer, list]) => [layer, list.length]));
    for (const { layer, groups } of kerasGroups(plan, counts)) {
      const left = [...(byLayer.get(layer) ?? [])];
      for (const { path: at, variables: count, isSeed } of groups) {
        const group = groupAt(file, `${at}/vars`);
        if (isSeed) group.create_dataset({ name: '0', data: new Uint32Array([0, 0]), shape: [2] });
        else
          for (const [i, { path: name, shape }] of left.splice(0, count).entries())
            group.create_dataset({ name: String(i), data: values.get(name)!, shape: [...shape] });
      }
    }
    file.close();
    return await readFile(target);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
