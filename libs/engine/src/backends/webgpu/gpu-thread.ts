/** The GPU thread: owns Dawn's device and the model. It answers requests in order; see thread-protocol.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import { createLayout } from '@paceline/learning';
import { GpuEngine } from './gpu-engine.js';
import { startGpu, type StartedGpu } from './start.js';
import { CELL_ANSWERS, CELL_ENDED, type GpuAnswer, type GpuRequest, type GpuThreadInit, type GpuThreadStart } from './thread-protocol.js';
import { toTransfer } from './transferred-error.js';

const { spec, description, format, webgpuPackage, cells, port } = workerData as GpuThreadInit;
const tell = (start: GpuThreadStart): void => parentPort!.postMessage(start);

function answer(given: GpuAnswer): void {
  port.postMessage(given);
  Atomics.add(cells, CELL_ANSWERS, 1);
  Atomics.notify(cells, CELL_ANSWERS);
}

/** No answer comes after this one. The thread ends by itself, when nothing is left to wait for: Dawn aborts the process when it ends before. */
function giveUp(error: Error): void {
  Atomics.store(cells, CELL_ENDED, 1);
  answer({ kind: 'failed', error: toTransfer(error) });
  port.close();
}

// A caller that waits for an answer is blocked and receives no event.
process.once('uncaughtException', giveUp);
process.once('exit', () => {
  Atomics.store(cells, CELL_ENDED, 1);
  Atomics.add(cells, CELL_ANSWERS, 1);
  Atomics.notify(cells, CELL_ANSWERS);
});

function run(engine: GpuEngine, gpu: StartedGpu, request: GpuRequest): unknown {
  switch (request.kind) {
    case 'load':
      return engine.load(request.flat);
    case 'step':
      return engine.step(request.request);
    case 'trace':
      return engine.trace(request.request);
    case 'evaluate':
      return engine.evaluate(request.batch);
    case 'memory':
      return engine.memory();
    case 'dispose':
      engine.dispose();
      return gpu.destroy();
  }
}

async function respond(engine: GpuEngine, gpu: StartedGpu, request: GpuRequest): Promise<void> {
  try {
    answer({ kind: 'done', value: await run(engine, gpu, request) });
  } catch (error) {
    answer({ kind: 'failed', error: toTransfer(error) });
  }
  if (request.kind === 'dispose') port.close(); // nothing holds the thread any more
}

let started: StartedGpu | undefined;
try {
  const gpu = (started = await startGpu(webgpuPackage));
  const engine = new GpuEngine(spec, description, format, createLayout(description), gpu);
  port.on('message', (request: GpuRequest) => void respond(engine, gpu, request));
  tell({ kind: 'ready', fingerprint: gpu.fingerprint, devices: gpu.devices, metricNames: engine.metricNames });
} catch (error) {
  started?.destroy(); // or Dawn takes the process along when the thread ends
  tell({ kind: 'refused', error: toTransfer(error) });
  port.close();
}
