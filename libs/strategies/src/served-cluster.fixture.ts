/** Parameter servers and workers in processes of their own, which stay while one program after the other coordinates them. */
import { freeCluster, MODEL_PROGRAM, Programs, type Running } from './programs.fixture.js';

const SECRET = { PACELINE_CLUSTER_SECRET: 'a secret of these tests' };
const SERVE = `
import { Server } from 'paceline/server';
const server = await Server.start();
console.log('serves', server.task.type, server.task.index);
process.once('SIGTERM', () => void server.close());
await server.join();
`;
/** The optimizer has slots by default. */
export const BUILD = `
import { ClusterCoordinator, HybridStrategy, MirroredStrategy, ParameterServerStrategy, TfConfigResolver } from 'paceline';
${MODEL_PROGRAM}
const build = (optimizer = tf.train.adam(0.01)) => built(seeded, optimizer);
const told = (error) => say({ code: error.code, name: error.constructor.name, message: error.message, members: error.members, replica: error.replica, step: error.step });
`;

export const WORKERS = 2;
const SERVERS = 2;

export class ServedCluster {
  readonly programs = new Programs();
  private readonly serving = new Map<string, Running>();

  private constructor(readonly tasks: Readonly<Record<string, readonly string[]>>) {}

  static async start(workers = WORKERS): Promise<ServedCluster> {
    const served = new ServedCluster(await freeCluster({ chief: 1, worker: workers, ps: SERVERS }));
    const all = (type: string, count: number): Running[] => Array.from({ length: count }, (_, i) => served.serve(type, i));
    await Promise.all([...all('ps', SERVERS), ...all('worker', workers)].map(({ said }) => said('serves')));
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
