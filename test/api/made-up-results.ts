/** Runs that have succeeded without a fleet: made-up weights as their result, and what an export of them holds. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { createLayout, createWeightsDigest } from '@paceline/learning';
import { unzip } from '@paceline/models';
import type { ModelDescription } from '@paceline/spec';
import { safetensorsHeader } from '@paceline/storage';
import { expect } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
import type { Caller, ControlPlane } from './services.js';

export async function storeWeightsOf(
  plane: ControlPlane,
  id: string,
  tell: (values: Float32Array, hash: string) => void = () => undefined,
): Promise<void> {
  const { model } = await plane.api.app.get(Database).run.findUniqueOrThrow({ where: { id }, select: { model: true } });
  const layout = createLayout(model as unknown as ModelDescription);
  const values = Float32Array.from({ length: layout.totalLength }, (_, i) => Math.sin(i));
  const digest = createWeightsDigest();
  digest.update(values);
  const hash = digest.hex();
  tell(values, hash);
  const folder = join(plane.dataDir, 'runs', id);
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'weights-a1.safetensors');
  const header = safetensorsHeader(layout.variables.map(({ path, shape }) => ({ name: path, shape })));
  writeFileSync(file, Buffer.concat([header, Buffer.from(values.buffer)]));
  await succeedWith(plane, id, { weightsFile: file, weightsSha256: hash });
}

export async function succeedWith(plane: ControlPlane, id: string, rest: object): Promise<void> {
  const result = { rounds: 9, values: { loss: 0.25, accuracy: 0.75 }, examplesPerSecond: 1, trainedExamples: 90, trainingMs: 1 };
  await plane.api.app.get(Database).run.update({
    where: { id },
    data: { status: 'SUCCEEDED', result: Object.assign(result, rest), finishedAt: new Date() },
  });
}

export async function archiveOf(as: Caller, id: string, query = ''): Promise<Map<string, Buffer>> {
  const reply = await as
    .get(`/api/v1/runs/${id}/export${query}`)
    .buffer(true)
    .parse((response, done) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('end', () => done(null, Buffer.concat(parts)));
    });
  expect([reply.status, reply.headers['content-type']]).toEqual([200, 'application/zip']);
  const files = await unzip(Readable.from([reply.body as Buffer]));
  return new Map(files.map(({ path, bytes }) => [path, Buffer.from(bytes)]));
}
