/** One engine on one thread without anything around it: what workers would do if distribution cost nothing. */
import { performance } from 'node:perf_hooks';
import { createEngine, describeModel } from '@paceline/engine';
import { openDataset, runDataOf } from '@paceline/data';
import { createInitialValues, createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';

const WARM_UP_STEPS = 30;
const LEAST_MS = 1_500;

/**
 * Parameters in, gradients of a batch of MNIST out, again and again.
 * @param {import('@paceline/spec').RunSpecInput} input
 * @param {number} count examples of the batch
 * @returns {Promise<() => { examplesPerSecond: number, cpuMs: number }>} each call measures; `cpuMs` is that of a step, with all threads of this process
 */
export async function engineAlone(input, count) {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const { format } = runDataOf(spec);
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const engine = await createEngine({ spec, description, format, layout });
  const [flat, out] = [0, 1].map(() => new Float32Array(new SharedArrayBuffer(layout.totalLength * 4)));
  if (!flat || !out) throw new Error('no memory');
  createInitialValues(description, spec.seed).fill(0, flat);
  const pixels = (format.inputs[0]?.shape ?? []).reduce((product, side) => product * side, 1);
  const batch = { inputs: [new Float32Array(count * pixels)], targets: [new Float32Array(count)], weights: undefined, count };
  const rows = Int32Array.from({ length: count }, (_, i) => i);
  (await openDataset('mnist')).train.gather(rows, 0, count, batch);
  let round = 0;
  const step = () => {
    engine.load(flat);
    engine.step({ round: round++, replica: 0, batches: [batch], out });
  };
  for (let i = 0; i < WARM_UP_STEPS; i++) step();
  return () => {
    const [since, cpu] = [performance.now(), process.cpuUsage()];
    let steps = 0;
    for (; performance.now() - since < LEAST_MS; steps++) step();
    const { user, system } = process.cpuUsage(cpu);
    return { examplesPerSecond: (steps * count * 1000) / (performance.now() - since), cpuMs: (user + system) / 1000 / steps };
  };
}
