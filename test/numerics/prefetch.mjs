/**
 * Stands for the compute thread: asks for the batches of round 1 and then computes without ever yielding, as an engine does. Prints which
 * of them were there before anybody waited for one, and whether all bytes are those of batches that are gathered on the spot.
 */
import { openDataset, rowBuffers, runDataOf } from '../../libs/data/dist/index.js';
import { parseRunSpec } from '../../libs/spec/dist/index.js';
import { BatchLoader } from '../../apps/worker/dist/batch-loader.js';
import { BatchPlan, fillBatch } from '../../apps/worker/dist/batch-plan.js';

const BUSY_MS = Number(process.argv[2]);
const REPLICAS = [0, 1, 2, 3];

const { spec } = parseRunSpec({
  model: 'mlp',
  augmentation: { shiftPixels: 2, rotateDegrees: 10 },
  globalBatch: 1024,
  replicas: REPLICAS.length,
  length: { rounds: 4 },
  seed: 3,
});
const dataset = await openDataset(spec.dataset);
const { format } = dataset;
const plan = new BatchPlan({ spec, examples: dataset.train.count, format });
const loader = await BatchLoader.open({ spec, data: runDataOf(spec), settings: {} });

/** Keeps this thread busy until `isEnough` or the deadline: no event of it is handled meanwhile. */
function compute(isEnough, deadlineMs) {
  for (const until = performance.now() + deadlineMs; performance.now() < until && !isEnough();) Math.hypot(1, 2);
}

const expected = rowBuffers(format, plan.maxExamples);
const rounds = [];
for (const round of [1, 2]) {
  loader.prefetch(round, REPLICAS);
  compute(() => REPLICAS.every((replica) => loader.isReady(round, replica)), BUSY_MS);
  const after = REPLICAS.filter((replica) => loader.isReady(round, replica));
  let isSame = true;
  for (const replica of REPLICAS) {
    const [batch] = loader.take(round, replica);
    await fillBatch(plan, dataset.train, { round, replica }, expected);
    const same = [...batch.inputs, ...batch.targets].every((values, field) => {
      const wanted = [...expected.inputs, ...expected.targets][field];
      return values.every((value, i) => value === wanted[i]);
    });
    loader.release(round, replica);
    isSame &&= same && batch.count === 256;
  }
  rounds.push({ after, isSame, isReleased: !REPLICAS.some((replica) => loader.isReady(round, replica)) });
}
console.log(JSON.stringify(rounds));
await loader.stop();
