/** Steps over gradient memory in one part and in several: where a vector is cut changes no bit. */
import type { StepRequest } from '@paceline/engine';
import { createLayout } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import { expect, it } from 'vitest';
import { AsyncSteps } from './async-steps.js';
import type { BatchLoader } from './batch-loader.js';
import { GradientMemory, GradientReader, type Vector } from './gradient-memory.js';
import { ReplicaSteps } from './replica-steps.js';

const zeros = { className: 'Zeros', config: {} };
/** Five chunks of gradients, and two of state. */
const LAYOUT = createLayout({
  variables: [
    { path: 'a', shape: [500, 160], section: 'trainable', initializer: zeros },
    { path: 'b', shape: [20_000], section: 'state', initializer: zeros },
  ] as unknown as ModelDescription['variables'],
  parameterCount: 80_000,
  stateCount: 20_000,
});
const [EXAMPLES, REPLICAS] = [3, 5];
const ONE_CHUNK = (1 << 20) + 3 * (16_384 * 4 + 64);
const loader = { take: () => [{}], release: () => undefined, forget: () => undefined, prefetch: () => undefined } as unknown as BatchLoader;

function setUp(arenaBytes: number | undefined) {
  const memory = new GradientMemory(LAYOUT, 3, arenaBytes);
  const reader = new GradientReader(memory.memories, memory.parts);
  const engine = {
    metricNames: ['loss'],
    step: ({ round, replica, out }: StepRequest) => {
      let at = 0;
      for (const piece of [out].flat() as Float32Array[])
        for (let i = 0; i < piece.length; i++) piece[i] = Math.sin(at++ * (replica + 1)) / (round + 3);
      return { count: EXAMPLES, metricSums: [1] };
    },
  };
  const nodes: { name: string; chunks: string[] }[] = [];
  const outputs = {
    contribution: () => undefined,
    progress: () => undefined,
    isObsolete: () => false,
    nonFinite: () => undefined,
    node: (round: number, lo: number, hi: number, vector: Vector) => {
      const chunks = LAYOUT.chunks.map((chunk) => Buffer.from(reader.chunk(vector, undefined, chunk).bytes).toString('base64'));
      nodes.push({ name: `${round} [${lo}, ${hi})`, chunks });
      memory.free(vector);
    },
  };
  return { memory, engine, outputs, nodes };
}

it.each([
  ['of all replicas', [0, 1, 2, 3, 4], ['2 [0, 5)']],
  ['of some', [1, 2, 3, 4], ['2 [1, 2)', '2 [2, 4)', '2 [4, 5)']],
])('the nodes %s of a round', (_, replicas, names) => {
  const [one, several] = [undefined, ONE_CHUNK].map((arenaBytes) => {
    const { memory, engine, outputs, nodes } = setUp(arenaBytes);
    new ReplicaSteps(engine, loader, memory, REPLICAS, () => false, outputs).run(2, replicas);
    expect([memory.parts.length, memory.bytesInUse]).toEqual([arenaBytes ? 7 : 1, 0]);
    return nodes;
  });
  expect(one!.map(({ name }) => name)).toEqual(names);
  expect(several).toEqual(one);
});

it('the gradient of a work item, and the change of its state', () => {
  const parameters = Float32Array.from({ length: LAYOUT.totalLength }, (_, i) => Math.cos(i));
  const [one, several] = [undefined, ONE_CHUNK].map((arenaBytes) => {
    const { memory, engine, outputs, nodes } = setUp(arenaBytes);
    new AsyncSteps(engine, loader, memory, LAYOUT, parameters, outputs).run({ round: 1, replica: 2 }, undefined);
    return nodes;
  });
  expect(several).toEqual(one);
  const state = new Float32Array(new Uint8Array(Buffer.from(one![0]!.chunks[5]!, 'base64')).buffer);
  const at = LAYOUT.trainableLength;
  expect(state[0]).toBe(Math.fround(Math.fround(Math.fround(Math.sin(at * 3) / 4) * Math.fround(1 / EXAMPLES)) - parameters[at]!));
});
