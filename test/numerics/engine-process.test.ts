/** The replica step gives the same bits in another process, from the built library, whatever was computed before. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { createEngine, describeModel } from '@paceline/engine';
import { createInitialValues, createLayout } from '@paceline/learning';
import { parseRunSpec, type RowFormat, type RunSpecInput } from '@paceline/spec';

/** Runs here and, as text, in the child: it may use nothing but its arguments. */
async function digestOfStep(modules: Modules, spec: RunSpecInput, earlierRounds: number): Promise<string> {
  const parsed = modules.parseRunSpec(spec);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const format: RowFormat = {
    inputs: [{ name: 'image', shape: [28, 28, 1] }],
    targets: [{ name: 'label', kind: 'classes', shape: [], classes: 10 }],
    isWeighted: false,
  };
  const description = await modules.describeModel(parsed.spec, format);
  const layout = modules.createLayout(description);
  const engine = await modules.createEngine({ spec: parsed.spec, description, format, layout });
  const flat = new Float32Array(layout.totalLength);
  modules.createInitialValues(description, parsed.spec.seed).fill(0, flat);
  engine.load(flat);
  const count = 16;
  const x = Float32Array.from({ length: count * 784 }, (_, i) => ((i * 37) % 101) / 101);
  const targets = [Float32Array.from({ length: count }, (_, i) => i % 10)];
  const out = new Float32Array(layout.totalLength);
  for (let round = 0; round < earlierRounds; round++)
    engine.step({ round, replica: round % 3, batches: [{ inputs: [x], targets, count: 5 + round }], out });
  const sums = engine.step({
    round: 7,
    replica: 2,
    batches: [
      { inputs: [x], targets, count },
      { inputs: [x.subarray(784)], targets, count: 3 },
    ],
    out,
  });
  engine.dispose();
  return modules.createHash('sha256').update(new Uint8Array(out.buffer)).update(JSON.stringify(sums)).digest('hex');
}

const own = { parseRunSpec, describeModel, createEngine, createLayout, createInitialValues, createHash };
type Modules = typeof own;

async function digestElsewhere(spec: RunSpecInput, earlierRounds: number): Promise<string> {
  const script = `
    import { createHash } from 'node:crypto';
    import * as engine from '@paceline/engine';
    import * as learning from '@paceline/learning';
    import * as spec from '@paceline/spec';
    ${digestOfStep.toString()}
    console.log(await digestOfStep({ ...engine, ...learning, ...spec, createHash }, ${JSON.stringify(spec)}, ${earlierRounds}));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    cwd: path.join(import.meta.dirname, '../../libs/engine'),
    timeout: 60_000,
  });
  return stdout.trim();
}

it.each(['mlp', 'mlp-dropout', 'cnn'] as const)(
  'a step of %s after other steps has the bits of the same step in a fresh process',
  async (model) => {
    const spec: RunSpecInput = { model, seed: 11 };
    const here = await digestOfStep(own, spec, 3);
    expect(await digestElsewhere(spec, 0)).toBe(here);
    expect(await digestElsewhere({ ...spec, seed: 12 }, 0)).not.toBe(here);
  },
);
