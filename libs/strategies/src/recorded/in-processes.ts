/**
 * `@paceline/strategies/recorded`: trainings that TensorFlow has recorded, trained again by the strategies of the library (`paceline verify`). Strategies block
 * their main thread, so each training has processes of its own. This part loads no tf.js.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { threadEntry } from '../threads/thread-entry.js';
import type { RecordedAnswer, RecordedMember, RecordedProgram, RecordedResult, RecordedStrategy, RecordedTask } from './protocol.js';

export type { RecordedProgram, RecordedResult } from './protocol.js';
export { RECORDED_TOPOLOGIES } from './protocol.js';
export { GROUP_WORKERS, HYBRID_REPLICAS, RECORDED_STAGES, unserved, unservedByLocalSteps } from './unserved.js';

const NOTHING_HEARD_MS = 60_000;
const SECRET_BYTES = 32;

export interface LibraryStrategy extends Pick<RecordedStrategy, 'kind' | 'communication' | 'workersPerGroup' | 'engine'> {
  /** Of multi-worker-mirrored, at most one per replica; the workers of parameter-server and hybrid; 1 for all others. */
  readonly processes: number;
  /** Parameter servers; 0 for kinds that have none. */
  readonly servers?: number;
}

/**
 * Trains the program in processes of this machine, which have ended when it returns.
 * @returns what each process that trains ended with: the coordinator alone where servers have the parameters
 * @throws Error with what a process says
 */
export async function trainInProcesses(
  program: RecordedProgram,
  { kind, communication, workersPerGroup, engine, processes, servers = 0 }: LibraryStrategy,
  { signal }: { readonly signal: AbortSignal },
): Promise<RecordedResult[]> {
  const members = await membersOf(kind, processes, servers);
  const children: ChildProcess[] = [];
  const end = (): void => children.forEach((child) => child.kill('SIGKILL'));
  signal.addEventListener('abort', end);
  try {
    const answers = members.map((member) => {
      const child = fork(fileURLToPath(threadEntry('recorded/recorded-process.js')), {
        serialization: 'advanced',
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      });
      children.push(child);
      const strategy = { kind, communication, workersPerGroup, engine, member };
      return answerOf(child, { program, strategy, deadlineMs: NOTHING_HEARD_MS });
    });
    const isServer = (i: number): boolean => servers > 0 && i > 0;
    const trained = Promise.all(answers.filter((_, i) => !isServer(i)));
    // Those that serve answer never: they only fail.
    return await Promise.race([trained, ...answers.filter((_, i) => isServer(i)).map((failed) => failed.then(() => trained))]);
  } finally {
    signal.removeEventListener('abort', end);
    end();
  }
}

/** The first one coordinates where there are servers; there is one, which is no member, where the strategy has one process. */
async function membersOf(kind: RecordedStrategy['kind'], processes: number, servers: number): Promise<(RecordedMember | undefined)[]> {
  if (kind !== 'multi-worker-mirrored' && servers === 0) return [undefined];
  const counts = servers === 0 ? { worker: processes } : { chief: 1, worker: processes, ps: servers };
  const tasks = Object.entries(counts).flatMap(([type, count]) =>
    Array.from({ length: count }, (_, index) => ({ type: type as RecordedMember['task']['type'], index })),
  );
  const addresses = await freeAddresses(tasks.length);
  const cluster: Record<string, string[]> = {};
  for (const [i, { type }] of tasks.entries()) (cluster[type] ??= []).push(addresses[i]!);
  const secret = randomBytes(SECRET_BYTES).toString('hex');
  // Half of the processes stand for one host, the others for a second one: what is hierarchical has two levels.
  const hosts = addresses.map((_, i) => (i < Math.ceil(addresses.length / 2) ? 'first' : 'second'));
  return tasks.map((task) => ({ task, cluster, hosts, secret }));
}

function answerOf(child: ChildProcess, task: RecordedTask): Promise<RecordedResult> {
  let errors = '';
  child.stderr!.on('data', (piece: Buffer) => (errors = (errors + piece.toString()).slice(-2000)));
  return new Promise((done, failed) => {
    child.once('error', failed);
    child.once('message', (answer: RecordedAnswer) => (answer.ok ? done(answer.result) : failed(new Error(answer.message))));
    child.once('exit', (code, ended) => failed(new Error(`a process of the library ended (${code ?? ended}): ${errors.trim()}`)));
    child.send(task, (error) => error && failed(error));
  });
}

/** On ports of this machine that are free at this moment. */
async function freeAddresses(count: number): Promise<string[]> {
  const servers = Array.from({ length: count }, () => createServer());
  await Promise.all(servers.map((server) => new Promise<void>((done) => server.listen(0, '127.0.0.1', done))));
  const addresses = servers.map((server) => `127.0.0.1:${(server.address() as AddressInfo).port}`);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return addresses;
}
