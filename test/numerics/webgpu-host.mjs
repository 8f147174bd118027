/**
 * A process with a GPU for test/numerics/webgpu.test.ts: the driver's environment has to be there when a process starts. Answers requests from its
 * parent in order, one engine at a time (`start`, then the engine's own methods), or the steps of many models on one device (`stepsOf`).
 */
import { datasetInfo } from '@paceline/data';
import { createEngine, describeModel } from '@paceline/engine';
import { createInitialValues, createLayout } from '@paceline/learning';
import { parseRunSpec } from '@paceline/spec';
import { webgpuPackage } from '@paceline/runtime';
import { GpuEngine } from '../../libs/engine/dist/backends/webgpu/gpu-engine.js';
import { startGpu } from '../../libs/engine/dist/backends/webgpu/start.js';
import { startThreadEngine } from '../../libs/engine/dist/backends/webgpu/thread-engine.js';

let engine;
let layout;
let gpu;

const newOut = (of) => new Float32Array(new SharedArrayBuffer(of.totalLength * 4)).fill(Number.NaN);

async function prepared(input) {
  const { spec, issues } = parseRunSpec({ ...input, engine: 'webgpu' });
  if (!spec) throw new Error(JSON.stringify(issues));
  const format = datasetInfo(spec.dataset).format;
  const description = await describeModel(spec, format);
  const layout = createLayout(description);
  const flat = new Float32Array(new SharedArrayBuffer(layout.totalLength * 4));
  createInitialValues(description, spec.seed).fill(0, flat);
  return { spec, description, format, layout, flat };
}

const actions = {
  async start({ input, webgpuFolder = webgpuPackage(import.meta.dirname), answerDeadlineMs, describedAs }) {
    const made = await prepared(input);
    if (describedAs) made.description = (await prepared(describedAs)).description; // as another release might
    layout = made.layout;
    const options = { ...made, webgpuPackage: webgpuFolder ?? undefined };
    engine = answerDeadlineMs === undefined ? await createEngine(options) : await startThreadEngine(options, answerDeadlineMs);
    engine.load(made.flat);
    const { name, fingerprint, devices, metricNames } = engine;
    return { name, fingerprint, devices, metricNames };
  },
  step({ isShared = true, length = layout.totalLength, ...request }) {
    const out = isShared ? newOut({ totalLength: length }) : new Float32Array(length);
    const sums = engine.step({ ...request, out });
    return { sums, out: Float32Array.from(out) };
  },
  steps({ count, ...request }) {
    const out = newOut(layout);
    for (let round = 0; round < count; round++) engine.step({ ...request, round, out });
    return engine.memory();
  },
  load: ({ flat }) => engine.load(flat),
  trace: (request) => engine.trace({ ...request, out: newOut(layout) }),
  evaluate: ({ batch }) => engine.evaluate(batch),
  memory: () => engine.memory(),
  dispose: () => engine.dispose(),
  /** Each model's step on one device, twice unless it is slow: compiling shaders takes most of the time. */
  async stepsOf({ models, batch }) {
    gpu ??= await startGpu(webgpuPackage(import.meta.dirname));
    const results = [];
    for (const { isSlow, ...input } of models) {
      const { spec, description, format, layout: of, flat } = await prepared(input);
      const model = new GpuEngine(spec, description, format, of, gpu);
      const [out, again] = [newOut(of), newOut(of)];
      try {
        model.load(flat);
        const sums = await model.step({ round: 0, replica: 0, batches: [batch], out });
        const before = model.memory();
        if (!isSlow) await model.step({ round: 0, replica: 0, batches: [batch], out: again });
        const after = model.memory();
        const isRepeated = isSlow || Buffer.from(out.buffer).equals(Buffer.from(again.buffer));
        results.push({
          sums,
          out: Float32Array.from(out),
          isRepeated,
          leaves: after.tensors - before.tensors + after.buffers - before.buffers,
        });
      } catch (error) {
        results.push({ error: error.message });
      }
      model.dispose();
    }
    return results;
  },
};

let last = Promise.resolve();
process.on('message', ({ id, action, args }) => {
  last = last
    .then(() => actions[action](args ?? {}))
    .then(
      (value) => process.send({ id, value }),
      (error) => process.send({ id, error: { name: error.name, message: error.message, code: error.code } }),
    );
});
