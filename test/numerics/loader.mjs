/** Asks a loader thread for what it cannot deliver, and prints what its user hears. Run by loader.test.ts: threads run the built worker. */
import { runDataOf } from '../../libs/data/dist/index.js';
import { parseRunSpec } from '../../libs/spec/dist/index.js';
import { BatchLoader } from '../../apps/worker/dist/batch-loader.js';

const { spec } = parseRunSpec({ globalBatch: 64, replicas: 2, length: { rounds: 3 }, stepDeadlineMs: 2_000 });
const data = runDataOf(spec);
let isStopping = false;
const open = (of = data) => BatchLoader.open({ spec, data: of, settings: {}, isStopping: () => isStopping });
const failureOf = ({ code, message }) => ({ code, message });
function failureIn(act) {
  try {
    return act();
  } catch (error) {
    return failureOf(error);
  }
}

const heard = { unknown: await open({ ...data, source: { kind: 'built-in', name: 'nowhere' } }).catch(failureOf) };
const loader = await open();
heard.asked = failureIn(() => loader.takeEvaluation(9_990, 10_010));
loader.prefetchEvaluation(9_990, 10_010);
heard.prepared = failureIn(() => loader.takeEvaluation(9_990, 10_010));
heard.next = loader.takeEvaluation(9_990, 10_000).count;
const [batch] = loader.take(0, 1);
heard.step = [batch.count, batch.inputs[0].length, batch.targets[0].length];
await loader.stop();
const from = performance.now();
heard.late = failureIn(() => loader.take(2, 0));
heard.waitedMs = performance.now() - from;
isStopping = true;
heard.stopping = failureIn(() => loader.take(1, 0));
console.log(JSON.stringify(heard));
