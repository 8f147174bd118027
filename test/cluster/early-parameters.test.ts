/** A real compute thread, whose main thread and servers this test plays: parameters that are loaded as they come give the gradients of those that are loaded whole. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runDataOf } from '@paceline/data';
import { describeModel } from '@paceline/engine';
import { SPAN_NAMES, type GradientNode } from '@paceline/exchange';
import type { StepTaskJob } from '@paceline/control-plane';
import { sharedBuffer } from '@paceline/kernels';
import { createInitialValues, createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { afterAll, expect, it } from 'vitest';

type ComputeModule = typeof import('../../apps/worker/src/compute.js');
const { Compute } = (await import(join(import.meta.dirname, '../../apps/worker/dist/compute.js'))) as ComputeModule;

const LOADS = SPAN_NAMES.indexOf('load parameters');
const layers = [
  ['InputLayer', { batch_input_shape: [null, 784] }],
  ['Dense', { units: 1024 }],
  ['Dense', { units: 1024 }],
  ['Dense', { units: 10 }],
] as const;
const topology = { class_name: 'Sequential', config: { layers: layers.map(([class_name, config]) => ({ class_name, config })) } };
const parsed = parseRunSpec({ model: { topology }, replicas: 1, globalBatch: 8, length: { rounds: 9 } });
if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
const { spec } = parsed;
const data = runDataOf(spec);
const model = await describeModel(spec, data.format);
const layout = createLayout(model);
const initial = new Float32Array(layout.totalLength);
createInitialValues(model, spec.seed).fill(0, initial);

const open: { stop(): Promise<void> }[] = [];
afterAll(() => Promise.all(open.map((compute) => compute.stop())));

async function startThread() {
  const parameters = sharedBuffer(layout.totalLength * 8);
  const compute = await Compute.start({ spec, data, model, servers: [{}] } as unknown as StepTaskJob, { backend: 'wasm' }, parameters, {
    threads: 1,
    leakLimits: { rssBytes: 2 ** 40 } as never,
    rowsSettings: {} as never,
    shard: () => undefined,
  });
  open.push(compute);
  let computed: (node: GradientNode) => void = () => undefined;
  let failed: (error: Error) => void = () => undefined;
  const nothing = (): void => undefined;
  compute.listen({
    contribution: nothing,
    node: (node) => computed(node),
    evaluated: nothing,
    nonFinite: nothing,
    failed: (code, message) => failed(new Error(`${code}: ${message}`)),
  });
  return {
    compute,
    /** Generation g of a chunk, or other values than those. */
    write(generation: number, chunk: number, other = 0) {
      const { offset, length } = layout.chunks[chunk]!;
      const values = new Float32Array(parameters, (generation & 1) * layout.totalLength * 4, layout.totalLength);
      for (let i = offset; i < offset + length; i++) values[i] = initial[i]! * (1 + 0.01 * generation + other);
    },
    async gradient(round: number): Promise<Buffer> {
      const node = await new Promise<GradientNode>((resolve, reject) => {
        [computed, failed] = [resolve, reject];
        compute.step(round, [0]);
      });
      const bits = Buffer.concat(layout.chunks.map((chunk) => Buffer.from(node.chunk(chunk).bytes)));
      node.release();
      return bits;
    },
  };
}

it('gradients have the bits of a whole load, also of a round that is redone while the next generation comes, and of chunks that come again', async () => {
  const [early, whole] = [await startThread(), await startThread()];
  const { arrivals } = early.compute;
  const indices = layout.chunks.map(({ index }) => index);
  const receive = (generation: number, chunk: number): void => {
    early.write(generation, chunk);
    arrivals.came(generation, chunk);
  };
  /** Nothing is told to have come, so it loads all of it. */
  const expected = (round: number): Promise<Buffer> => {
    for (const chunk of indices) whole.write(round, chunk);
    whole.compute.arrivals.opens(round, []);
    return whole.gradient(round);
  };
  arrivals.opens(0, []);
  for (const chunk of indices) receive(0, chunk);
  const first = await expected(0);
  expect((await early.gradient(0)).equals(first)).toBe(true);
  early.compute.startTrace();
  for (let round = 1; round < 5; round++) {
    arrivals.opens(round, []);
    for (const chunk of indices.filter((each) => each % 3 !== round % 3)) receive(round, chunk);
    await sleep(20);
    if (round === 2) expect((await early.gradient(1)).equals(await expected(1)), 'redone').toBe(true);
    for (const chunk of indices.filter((each) => each % 3 === 0)) {
      // Of a server that was taken over: other values, then those that count.
      arrivals.gone(round, chunk);
      early.write(round, chunk, 0.5);
      arrivals.came(round, chunk);
      await sleep(2);
      arrivals.gone(round, chunk);
    }
    for (const chunk of indices.filter((each) => each % 3 === 0 || each % 3 === round % 3)) receive(round, chunk);
    expect((await early.gradient(round)).equals(await expected(round)), `round ${round}`).toBe(true);
  }
  const [recorded] = await early.compute.stopTrace(60_000);
  const loads = recorded!.recording.spans.filter(([name]) => name === LOADS).length;
  expect(loads, 'some of it was loaded ahead').toBeGreaterThan(5);
});
