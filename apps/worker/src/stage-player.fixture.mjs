/**
 * One stage of a model that is played: tensors and gradients are known numbers, everything else is real. It computes the rounds that it is told, one after the other, each
 * somewhat later than the stage beside it.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { LentVectors } from '../dist/gradient-memory.js';
import { StageFlow } from '../dist/stage-flow.js';
import { StageSteps } from '../dist/stage-steps.js';

const { stage, stages, replicas, layout, own, lent, memory, plan, counts, cells, delaysMs } = workerData;
const [COMMITTED, RUNNING] = [0, 1];
const isLast = stage === stages - 1;
const gradients = new LentVectors(layout, lent);
const flow = new StageFlow(memory, plan, stage, () => Atomics.load(cells, RUNNING));
/** Passes whose gradients have not come back: replicas, with what came in. */
const kept = new Map();
let mostKept = 0;

const pause = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, delaysMs[Math.floor(Math.random() * delaysMs.length)]);

const engine = {
  fields: stage === 0 ? [0] : [],
  metricNames: ['loss', 'accuracy'],
  pass({ replica }, { inputs: [input], count }, passed) {
    pause();
    if (kept.has(replica)) throw new Error(`replica ${replica} is passed on twice`);
    kept.set(replica, input[0]);
    mostKept = Math.max(mostKept, kept.size);
    if (input.length < count) throw new Error('too few rows');
    passed.fill(input[0] + 1);
  },
  gradients({ replica }, { inputs: [input], count }, { out, passed, received }) {
    pause();
    const came = isLast ? input[0] : kept.get(replica);
    kept.delete(replica);
    const back = isLast ? replica + 1 : passed[0];
    received?.fill(back + 1);
    let first = 0;
    for (const piece of out) {
      for (const { offset, length } of own)
        for (let i = Math.max(offset, first); i < Math.min(offset + length, first + piece.length); i++)
          piece[i - first] = Math.sin((i + 1) * (replica + 1)) * 10 ** (replica % 7) + came + back;
      first += piece.length;
    }
    return [isLast ? replica : 0.5, isLast ? count : 0];
  },
  forget: () => kept.clear(),
};
const steps = new StageSteps({
  engine,
  flow,
  gradients,
  own,
  replicas,
  stage,
  stages,
  loader:
    stage === 0 || isLast
      ? {
          take: (_, replica) => [{ inputs: [new Float32Array(9).fill(replica)], targets: [] }],
          release: () => undefined,
          prefetch: () => undefined,
        }
      : undefined,
  plan: { count: (_, replica) => counts[replica] },
  load: () => undefined,
  outputs: {
    contribution: (round, replica, examples, sums) => parentPort.postMessage({ kind: 'contribution', round, replica, examples, sums }),
    node: (round, lo, hi, vector) => parentPort.postMessage({ kind: 'node', round, lo, hi, vector }),
    progress: () => void Atomics.add(cells, RUNNING, 1),
    isObsolete: (round) => Atomics.load(cells, COMMITTED) > round,
  },
});

parentPort.on('message', ({ round, replicas: some, lent: vectors }) => {
  try {
    gradients.lend(vectors);
    steps.run(round, some);
    parentPort.postMessage({ kind: 'stepped', vectors: gradients.giveBack(), mostKept });
  } catch (error) {
    parentPort.postMessage({ kind: 'failed', code: error.code ?? error.name, message: error.message });
  }
});
