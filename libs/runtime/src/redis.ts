/**
 * An embedded Redis for the local stack and the tests: 127.0.0.1 only, with a random password and a user for each role (given by stdin, so neither
 * the process list nor a file shows it), `maxmemory-policy noeviction` (BullMQ loses jobs otherwise) and an append-only file written every second.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { endProcess, killWithChildren } from './end-process.js';
import { BIND_ATTEMPTS, findFreePort, whyNotListening } from './free-port.js';
import { guardDirectory, guardProcess } from './orphan-guard.js';
import { sizeOf, tail, type RunningService, type ServiceOptions } from './postgres.js';
import { findRedis, REDIS_IMAGE, REDIS_SOURCES, type RedisBinary, type RedisSource } from './redis-sources.js';
import { redisPassword, redisUserLines, type RedisRole } from './redis-users.js';
import { UserError } from './user-error.js';

export interface RunningRedis extends RunningService {
  readonly source: RedisSource;
  readonly version: string;
  /** The address with the user of a role, who may do what that role needs (`redis-users.ts`). `url` is that of the operator, who may do everything. */
  urlOf(role: RedisRole): string;
}

export interface RedisOptions extends ServiceOptions {
  /** The operator's, without blanks; random when not given. One that is started again has that of before. */
  readonly password?: string;
  /** Told when a candidate has to be downloaded, or could not be noted beside its data. */
  readonly onProgress?: (text: string) => void;
}

const HOST = '127.0.0.1';

/** @throws UserError REDIS_* or PORT_TAKEN with what to do */
export async function startRedis(options: RedisOptions): Promise<RunningRedis> {
  const { temporary = false, deadlineMs = 15_000 } = options;
  const dataDir = resolve(options.dataDir);
  const binary = await findRedis({ onTry: options.onProgress, former: temporary ? undefined : redisOf(dataDir) });
  const isFirst = !existsSync(dataDir);
  const keepDirectory = temporary ? guardDirectory(dataDir) : undefined;
  mkdirSync(dataDir, { recursive: true });
  chmodSync(dataDir, 0o700);
  const password = options.password ?? randomBytes(24).toString('base64url');
  const logFile = join(dataDir, 'redis.log');
  try {
    const { child, pid, port } = await startOnSomePort(binary, {
      dataDir,
      logFile,
      password,
      wanted: options.port ?? 0,
      deadlineMs,
      temporary,
    });
    const release = guardProcess(pid, { isDatabase: true });
    const problem = temporary ? undefined : keepRedisOf(dataDir, binary);
    // What is known from before may still serve, and the next start tries again.
    if (problem) options.onProgress?.(`which Redis has written ${dataDir} could not be noted: ${problem.message}`);
    const ended = new Promise<void>((done) => {
      if (child.exitCode !== null || child.signalCode !== null) done();
      child.once('exit', () => done());
    });
    void ended.then(release);
    let stopping: Promise<void> | undefined;
    const stop = async (): Promise<void> => {
      await endProcess(child, { deadlineMs: 10_000 });
      release();
      if (temporary) await rm(dataDir, { recursive: true, force: true });
      keepDirectory?.();
    };
    const kill = async (): Promise<void> => {
      await killWithChildren(child);
      release();
      keepDirectory?.();
    };
    return {
      url: `redis://:${password}@${HOST}:${port}`,
      urlOf: (role) => `redis://${role}:${redisPassword(password, role)}@${HOST}:${port}`,
      host: HOST,
      port,
      pid,
      logFile,
      ended,
      source: binary.source,
      version: binary.version,
      stop: () => (stopping ??= stop()),
      kill,
    };
  } catch (error) {
    if (temporary && isFirst) rmSync(dataDir, { recursive: true, force: true });
    keepDirectory?.();
    throw error;
  }
}

const WRITTEN_BY = 'written-by.json';

/** The server that has written the data of a folder; undefined when there are none, or they are of an earlier version of Paceline. */
export function redisOf(dataDir: string): RedisBinary | undefined {
  try {
    const { source, command, version, libraryPath } = JSON.parse(readFileSync(join(dataDir, WRITTEN_BY), 'utf8')) as RedisBinary;
    return { source, command, version, ...(libraryPath ? { libraryPath } : {}) };
  } catch {
    return undefined;
  }
}

/** @returns why it could not be kept, a full disk for example */
function keepRedisOf(dataDir: string, { source, command, version, libraryPath }: RedisBinary): Error | undefined {
  const file = join(dataDir, WRITTEN_BY);
  try {
    writeFileSync(`${file}.new`, JSON.stringify({ source, command, version, libraryPath }), { mode: 0o600 });
    renameSync(`${file}.new`, file);
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

interface Plan {
  readonly dataDir: string;
  readonly logFile: string;
  readonly password: string;
  readonly wanted: number;
  readonly deadlineMs: number;
  readonly temporary: boolean;
}

async function startOnSomePort(binary: RedisBinary, plan: Plan): Promise<{ child: ChildProcess; pid: number; port: number }> {
  for (let attempt = 1; ; attempt++) {
    const port = plan.wanted === 0 ? await findFreePort() : plan.wanted;
    const logFrom = sizeOf(plan.logFile);
    const child = spawnRedis(binary, plan, port);
    const outcome = await becameReady(child, port, plan);
    if (outcome === 'ready') return { child, pid: child.pid!, port };
    await endProcess(child, { deadlineMs: 2000 });
    const log = tail(plan.logFile, Math.min(3000, sizeOf(plan.logFile) - logFrom)).trim();
    const portTaken =
      /already in use|Could not create server TCP listening socket|port is already allocated/i.test(log) ||
      (outcome === 'ended' && (await whyNotListening(port))?.code === 'EADDRINUSE');
    if (portTaken && plan.wanted === 0 && attempt < BIND_ATTEMPTS) continue;
    throw portTaken
      ? new UserError('PORT_TAKEN', `Port ${port} for Redis is taken.`, {
          hint: 'Stop what listens there, or choose another port.',
          exit: 'configuration',
        })
      : new UserError(
          'REDIS_START_FAILED',
          `Redis (${binary.command}) ${outcome === 'timeout' ? `was not ready after ${plan.deadlineMs} ms` : 'ended at its start'}:\n${log}`,
          {
            hint: `The whole log is ${plan.logFile}. REDIS_URL uses a Redis of your own instead, and PACELINE_REDIS_SOURCE (${REDIS_SOURCES.join(', ')}) another of the embedded ones.`,
            exit: 'unavailable',
          },
        );
  }
}

function spawnRedis(binary: RedisBinary, plan: Plan, port: number): ChildProcess {
  const inDocker = binary.source === 'docker';
  const config = [
    inDocker ? 'bind 0.0.0.0' : `bind ${HOST}`,
    `port ${inDocker ? 6379 : port}`,
    `requirepass ${plan.password}`,
    ...redisUserLines(plan.password, majorVersion(binary)),
    `dir ${JSON.stringify(inDocker ? '/data' : plan.dataDir)}`,
    'daemonize no',
    'logfile ""',
    'loglevel notice',
    'save ""',
    'maxmemory-policy noeviction',
    plan.temporary ? 'appendonly no' : 'appendonly yes',
    'appendfsync everysec',
    'tcp-keepalive 60',
    '',
  ].join('\n');
  const { uid, gid } = statSync(plan.dataDir);
  const [command, args]: [string, string[]] = inDocker
    ? [
        binary.command,
        [
          'run',
          '--rm',
          '--interactive',
          '--publish',
          `${HOST}:${port}:6379`,
          '--volume',
          `${plan.dataDir}:/data`,
          '--user',
          `${uid}:${gid}`,
          REDIS_IMAGE,
          'redis-server',
          '-',
        ],
      ]
    : [binary.command, ['-']];
  const log = openSync(plan.logFile, 'a', 0o600);
  try {
    const env = {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      LC_ALL: 'C',
      ...(binary.libraryPath ? { LD_LIBRARY_PATH: binary.libraryPath } : {}),
    };
    const child = spawn(command, args, { detached: true, cwd: plan.dataDir, stdio: ['pipe', log, log], env });
    child.on('error', () => undefined); // seen as an end without a pid
    child.stdin!.on('error', () => undefined); // it ended before it read its configuration: reported from its log
    child.stdin!.end(config);
    return child;
  } finally {
    closeSync(log);
  }
}

/** Valkey counts on from the Redis that it was made of; a version that cannot be read is that of our image. */
const majorVersion = ({ version }: RedisBinary): number => Number(/\bv=(\d+)/.exec(version)?.[1] ?? 7);

async function becameReady(child: ChildProcess, port: number, plan: Plan): Promise<'ready' | 'ended' | 'timeout'> {
  const until = performance.now() + plan.deadlineMs;
  while (performance.now() < until) {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return 'ended';
    if (await answersPing(port, plan.password)) return 'ready';
    await sleep(15);
  }
  return 'timeout';
}

/** AUTH and PING by hand: whoever else took the port does not know the password. */
function answersPing(port: number, password: string): Promise<boolean> {
  return new Promise((done) => {
    let received = '';
    const socket = connect({ host: HOST, port });
    const finish = (ok: boolean): void => {
      socket.destroy();
      done(ok);
    };
    socket.setTimeout(1000, () => finish(false));
    socket.on('error', () => finish(false));
    socket.on('close', () => finish(false));
    socket.on('connect', () => socket.write(`AUTH ${password}\r\nPING\r\n`));
    socket.on('data', (chunk) => {
      received = (received + chunk.toString('latin1')).slice(-200);
      if (received.includes('+PONG')) finish(true);
      else if (received.startsWith('-')) finish(false); // still loading its file, or somebody else's server
    });
  });
}
