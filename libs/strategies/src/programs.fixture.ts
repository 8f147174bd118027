/** Programs of people, as files in a folder in which both packages are installed, run by Node in processes of their own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);

export interface Ended {
  readonly status: number | null;
  readonly output: string;
  readonly errors: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  /** What it was started with. */
  readonly env: Readonly<Record<string, string>>;
  /** When a line of the output begins with that. */
  said(start: string): Promise<void>;
}

export class Programs {
  private readonly folder = mkdtempSync(join(tmpdir(), 'library-'));
  private readonly running = new Set<ChildProcess>();
  private files = 0;

  constructor() {
    // `@tensorflow/tfjs` is the sum of its parts.
    const tfjs = join(this.folder, 'node_modules/@tensorflow/tfjs');
    mkdirSync(tfjs, { recursive: true });
    const part = (name: string): string => JSON.stringify(pathToFileURL(require.resolve(name)).href);
    writeFileSync(join(tfjs, 'package.json'), JSON.stringify({ name: '@tensorflow/tfjs', type: 'module', exports: './index.js' }));
    writeFileSync(
      join(tfjs, 'index.js'),
      ['core', 'layers'].map((name) => `export * from ${part(`@tensorflow/tfjs-${name}`)};\n`).join('') +
        `import ${part('@tensorflow/tfjs-backend-cpu')};\n`,
    );
    symlinkSync(join(import.meta.dirname, '..'), join(this.folder, 'node_modules/paceline'));
  }

  /** A module beside the programs. */
  write(name: string, source: string): void {
    writeFileSync(join(this.folder, name), source);
  }

  start(source: string, env: Readonly<Record<string, string>> = {}): Running {
    const file = join(this.folder, `train-${this.files++}.mjs`);
    writeFileSync(file, source);
    const child = spawn(process.execPath, [file], { cwd: this.folder, stdio: ['ignore', 'pipe', 'pipe'], env });
    this.running.add(child);
    const texts = { output: '', errors: '' };
    const listeners = new Set<() => void>();
    child.stdout.on('data', (piece: Buffer) => {
      texts.output += piece.toString();
      for (const listener of listeners) listener();
    });
    child.stderr.on('data', (piece: Buffer) => (texts.errors += piece.toString()));
    const ended = new Promise<Ended>((resolve) => {
      child.once('close', (status) => {
        this.running.delete(child);
        resolve({ status, ...texts });
        for (const listener of listeners) listener();
      });
    });
    const said = (start: string): Promise<void> =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (`\n${texts.output}`.includes(`\n${start}`)) resolve();
          else if (child.exitCode !== null) reject(new Error(`it ended before it said "${start}": ${texts.errors}`));
          else return;
          listeners.delete(look);
        };
        listeners.add(look);
        look();
      });
    return { child, ended, env, said };
  }

  dispose(): void {
    for (const child of this.running) child.kill('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A cluster with these numbers of tasks, on ports of this machine that are free at this moment. */
export async function freeCluster(counts: Readonly<Record<string, number>>): Promise<Record<string, string[]>> {
  const all = Object.entries(counts).flatMap(([type, count]) => Array.from({ length: count }, () => ({ type, server: createServer() })));
  await Promise.all(all.map(({ server }) => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))));
  const cluster: Record<string, string[]> = {};
  for (const { type, server } of all) (cluster[type] ??= []).push(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  await Promise.all(all.map(({ server }) => new Promise((resolve) => server.close(resolve))));
  return cluster;
}

/** A cluster of workers on ports of this machine that are free at this moment, as TF_CONFIG of each. */
export async function tfConfigs(workers: number): Promise<string[]> {
  const { worker } = await freeCluster({ worker: workers });
  return worker!.map((_, index) => JSON.stringify({ cluster: { worker }, task: { type: 'worker', index } }));
}

/** Data and a model for programs: it has dropout, the state of batch normalisation, metrics, a last batch that is smaller, and initial weights by a seed. */
export const MODEL_PROGRAM = `
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs';

const examples = 150;
const xs = tf.tensor2d(Float32Array.from({ length: examples * 8 }, (_, i) => Math.sin(i * 1.7)), [examples, 8]);
const ys = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => i % 3), [examples, 1]);
const seeded = (seed) => tf.initializers.glorotUniform({ seed });
const built = (kernel, optimizer) => {
  const net = tf.sequential({
    layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: kernel(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dropout({ rate: 0.2, name: 'drop' }),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: kernel(2) }),
    ],
  });
  net.compile({ optimizer, loss: 'sparseCategoricalCrossentropy', metrics: ['accuracy'] });
  return net;
};
const fit = (model, more = {}) => model.fit(xs, ys, { epochs: 2, batchSize: 40, verbose: 0, validationSplit: 0.1, shuffle: false, ...more });
const digest = async (model) => {
  const hash = createHash('sha256');
  for (const weight of [...model.getWeights(), ...await model.optimizer.getWeights()]) hash.update(Buffer.from((weight.tensor ?? weight).dataSync().buffer));
  return hash.digest('hex');
};
const say = (value) => console.log(JSON.stringify(value));
`;
