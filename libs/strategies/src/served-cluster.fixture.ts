/** Parameter servers and workers in processes of their own, which stay while one program after the other coordinates them. */
import { freeCluster, Programs, type Running } from './programs.fixture.js';

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };
const SERVE = `
import { Server } from './node_modules/paceline/dist/servers/server.js';
const server = await Server.start();
console.log('serves', server.task.type, server.task.index);
process.once('SIGTERM', () => void server.close());
await server.join();
`;
/** Has dropout, the state of batch normalisation, an optimizer with slots, metrics, a last batch that is smaller, and initial weights by chance. */
export const BUILD = `
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs';
import { ClusterCoordinator, HybridStrategy, MirroredStrategy, ParameterServerStrategy, TfConfigResolver } from 'paceline';
const examples = 150;
const xs = tf.tensor2d(Float32Array.from({ length: examples * 8 }, (_, i) => Math.sin(i * 1.7)), [examples, 8]);
const ys = tf.tensor2d(Float32Array.from({ length: examples }, (_, i) => i % 3), [examples, 1]);
const seeded = (seed) => tf.initializers.glorotUniform({ seed });
const build = (optimizer = tf.train.adam(0.01)) => {
  const net = tf.sequential({
    layers: [
      tf.layers.dense({ units: 16, activation: 'relu', inputShape: [8], kernelInitializer: seeded(1) }),
      tf.layers.batchNormalization(),
      tf.layers.dropout({ rate: 0.2, name: 'drop' }),
      tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: seeded(2) }),
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
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members, replica: error.replica, step: error.step });
`;

export const WORKERS = 2;
const SERVERS = 2;

export class ServedCluster {
  readonly programs = new Programs();
  private readonly serving = new Map<string, Running>();

  private constructor(readonly tasks: Readonly<Record<string, readonly string[]>>) {}

  static async start(): Promise<ServedCluster> {
    const served = new ServedCluster(await freeCluster({ chief: 1, worker: WORKERS, ps: SERVERS }));
    const all = (type: string, count: number): Running[] => Array.from({ length: count }, (_, i) => served.serve(type, i));
    await Promise.all([...all('ps', SERVERS), ...all('worker', WORKERS)].map(({ said }) => said('serves')));
    return served;
  }

  /** The process of a task, again where it has ended. */
  serve(type: string, index: number): Running {
    const running = this.programs.start(SERVE, this.environment(type, index));
    this.serving.set(`${type} ${index}`, running);
    return running;
  }

  /** Kills the process of a task, and starts it again. @returns the one that was killed */
  async killed(type: string, index: number): Promise<Running> {
    const victim = this.processOf(type, index);
    victim.child.kill('SIGKILL');
    await victim.ended;
    await this.serve(type, index).said('serves');
    return victim;
  }

  processOf(type: string, index: number): Running {
    return this.serving.get(`${type} ${index}`)!;
  }

  /** A program that coordinates: the processes begin anew with it. */
  coordinate(source: string): Running {
    return this.programs.start(source, this.environment('chief', 0));
  }

  dispose(): void {
    this.programs.dispose();
  }

  private environment(type: string, index: number): Record<string, string> {
    return { ...SECRET, TF_CONFIG: JSON.stringify({ cluster: this.tasks, task: { type, index } }) };
  }
}
