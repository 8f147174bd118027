/**
 * An embedded PostgreSQL for the local stack and the tests.
 *
 *     dataDir/            0711
 *       cluster/          0700, made under another name and renamed, so it is there completely or not at all
 *       password          0600, random, made once
 *       postgres.log
 *
 * PostgreSQL refuses to run as root, so root runs it as another user, who may not enter /root. On Linux it then begins inside of its folder,
 * where it needs no way through the folders above, and calls it /proc/self/cwd.
 *
 * It listens on 127.0.0.1 only, without a Unix socket, and asks for the password (SCRAM). Readiness is read from postmaster.pid, as
 * pg_ctl does: no connection is needed and no log is parsed. Measured on two cores: initdb 0.55 s, start 0.1 s.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  fstatSync,
  rmSync,
  chmodSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { endProcess, isAlive, killWithChildren } from './end-process.js';
import { BIND_ATTEMPTS, findFreePort } from './free-port.js';
import { guardDirectory, guardProcess } from './orphan-guard.js';
import { canReach, postgresBinaries, type PostgresBinaries } from './postgres-binaries.js';
import { isPostgresOf } from './postgres-process.js';
import { UserError } from './user-error.js';

export interface ServiceOptions {
  readonly dataDir: string;
  /** 0 takes a free port. */
  readonly port?: number;
  /** For tests and demos: no fsync, and `stop` removes dataDir. */
  readonly temporary?: boolean;
  readonly deadlineMs?: number;
}

export interface RunningService {
  /** With user and password. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly pid: number;
  readonly logFile: string;
  /** Settles when the process ends, whoever ended it. */
  readonly ended: Promise<void>;
  /** Ends the process; removes dataDir when it is temporary. */
  stop(): Promise<void>;
  /** SIGKILL to the process and its children, which write nothing more; dataDir stays as it is. */
  kill(): Promise<void>;
}

const HOST = '127.0.0.1';
const USER = 'paceline';
const DATABASE = 'paceline';

/**
 * Starts PostgreSQL on `dataDir`, making the cluster at the first start.
 * @throws UserError POSTGRES_* with what to do
 */
export async function startPostgres(options: ServiceOptions): Promise<RunningService> {
  const { temporary = false, deadlineMs = 30_000 } = options;
  const dataDir = resolve(options.dataDir);
  const cluster = join(dataDir, 'cluster');
  const binaries = await postgresBinaries(cluster);
  const isFirst = !existsSync(dataDir);
  const keepDirectory = temporary ? guardDirectory(dataDir) : undefined;
  mkdirSync(dataDir, { recursive: true });
  chmodSync(dataDir, 0o711); // whatever the umask is: PostgreSQL's user must pass through, and nobody may list
  try {
    const reach = reachOf(dataDir, binaries);
    const isNew = !existsSync(cluster);
    if (isNew) await initialise(dataDir, cluster, binaries, reach, deadlineMs);
    else await prepareExisting(cluster, binaries);
    const password = readFileSync(join(dataDir, 'password'), 'utf8').trim();
    const started = await startOnSomePort({ dataDir, cluster, binaries, reach, wanted: options.port ?? 0, temporary, deadlineMs });
    const address = (database: string): string => `postgresql://${USER}:${password}@${HOST}:${started.port}/${database}`;
    const release = guardProcess(started.pid, { signal: 'INT', isDatabase: true });
    void started.ended.then(release);
    let stopping: Promise<void> | undefined;
    const stop = async (): Promise<void> => {
      // SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one: a SIGKILL would leave its shared memory behind.
      await endProcess(started.child, { signal: 'SIGINT', deadlineMs: 10_000, killSignal: 'SIGQUIT' });
      release();
      if (temporary) await rm(dataDir, { recursive: true, force: true });
      keepDirectory?.();
    };
    const kill = async (): Promise<void> => {
      await killWithChildren(started.child);
      release();
      keepDirectory?.();
    };
    const service: RunningService = {
      url: address(DATABASE),
      host: HOST,
      port: started.port,
      pid: started.pid,
      logFile: join(dataDir, 'postgres.log'),
      ended: started.ended,
      stop: () => (stopping ??= stop()),
      kill,
    };
    try {
      await createDatabase(address('postgres'), deadlineMs);
    } catch (error) {
      await service.stop();
      throw error;
    }
    return service;
  } catch (error) {
    if (temporary && isFirst) rmSync(dataDir, { recursive: true, force: true });
    keepDirectory?.();
    throw error;
  }
}

type Reach = 'by-path' | 'from-inside';

function reachOf(dataDir: string, { runAs }: PostgresBinaries): Reach {
  if (!runAs || canReach(dataDir, runAs)) return 'by-path';
  if (process.platform === 'linux') return 'from-inside';
  throw new UserError('POSTGRES_FOLDER_CLOSED', `PostgreSQL does not run as root, and user ${runAs.user} may not enter ${dataDir}.`, {
    hint: 'Set PACELINE_HOME to a folder outside /root, for example /var/lib/paceline.',
    exit: 'configuration',
  });
}

/** The folder that the process begins in, and the name by which it knows it. */
const begins = (reach: Reach, cluster: string): { readonly cwd: string; readonly name: string } =>
  reach === 'by-path' ? { cwd: '/', name: cluster } : { cwd: cluster, name: '/proc/self/cwd' };

async function initialise(dataDir: string, cluster: string, binaries: PostgresBinaries, reach: Reach, deadlineMs: number): Promise<void> {
  const staging = `${cluster}.new`;
  await rm(staging, { recursive: true, force: true });
  mkdirSync(staging, { mode: 0o700 });
  const password = randomBytes(24).toString('base64url');
  const passwordFile = join(dataDir, 'password.initdb');
  writeFileSync(join(dataDir, 'password'), password, { mode: 0o600 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (binaries.runAs) {
    chownSync(staging, binaries.runAs.uid, binaries.runAs.gid);
    chownSync(passwordFile, binaries.runAs.uid, binaries.runAs.gid);
  }
  const { cwd, name } = begins(reach, staging);
  const flags = [
    `--pgdata=${name}`,
    `--username=${USER}`,
    `--pwfile=${reach === 'by-path' ? passwordFile : '../password.initdb'}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--no-sync',
    '--no-instructions',
  ];
  const child = spawn(binaries.initdb, flags, {
    ...identity(binaries),
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: cleanEnvironment(),
  });
  let output = '';
  const collect = (chunk: Buffer): void => void (output = (output + chunk.toString('utf8')).slice(-4000));
  child.stdout.on('data', collect);
  child.stderr.on('data', collect);
  const release = child.pid === undefined ? undefined : guardProcess(child.pid);
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs);
  const code = await new Promise<number | string>((done) => {
    child.once('error', (error) => done(error.message));
    child.once('close', (exitCode, signal) => done(exitCode ?? signal ?? 'unknown'));
  });
  clearTimeout(timer);
  release?.();
  rmSync(passwordFile, { force: true });
  if (code !== 0) {
    await rm(staging, { recursive: true, force: true });
    throw new UserError('POSTGRES_INIT_FAILED', `PostgreSQL could not make its data folder in ${dataDir} (${code}):\n${output.trim()}`, {
      hint: 'Check free space and permissions, or set DATABASE_URL.',
      exit: 'unavailable',
    });
  }
  await rename(staging, cluster);
}

async function prepareExisting(cluster: string, { version }: PostgresBinaries): Promise<void> {
  const major = readFileSync(join(cluster, 'PG_VERSION'), 'utf8').trim();
  if (major !== version.split('.')[0]) {
    throw new UserError(
      'POSTGRES_OTHER_VERSION',
      `The data in ${cluster} was written by PostgreSQL ${major}, the embedded one is ${version}.`,
      {
        hint: 'Move the folder away to start afresh, or run that version yourself and set DATABASE_URL.',
        exit: 'configuration',
      },
    );
  }
  const postmaster = readPostmaster(cluster);
  if (!postmaster || !isAlive(postmaster.pid)) return; // PostgreSQL sees for itself that it is left of one that has ended
  const isOfCluster = isPostgresOf(cluster, postmaster.pid);
  // A server whose launcher and guard were both killed: the caller holds the lock of this folder, so it is ours to end.
  if (isOfCluster) await endProcess(postmaster.pid, { signal: 'SIGINT', deadlineMs: 10_000, killSignal: 'SIGQUIT' });
  // The pid was given to another process, for which PostgreSQL would refuse to start. Memory that is still in use it finds by the cluster itself.
  if (isOfCluster === false) rmSync(join(cluster, 'postmaster.pid'), { force: true });
}

interface Started {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly port: number;
  readonly ended: Promise<void>;
}

interface Plan {
  readonly dataDir: string;
  readonly cluster: string;
  readonly binaries: PostgresBinaries;
  readonly reach: Reach;
  /** 0 takes a free port. */
  readonly wanted: number;
  readonly temporary: boolean;
  readonly deadlineMs: number;
}

async function startOnSomePort(plan: Plan): Promise<Started> {
  const { dataDir, cluster, wanted, deadlineMs } = plan;
  const logFile = join(dataDir, 'postgres.log');
  for (let attempt = 1; ; attempt++) {
    const port = wanted === 0 ? await findFreePort() : wanted;
    const logFrom = sizeOf(logFile);
    const started = spawnPostgres(plan, port, logFile);
    const end = (): Promise<boolean> => endProcess(started.child, { signal: 'SIGINT', deadlineMs: 5000, killSignal: 'SIGQUIT' });
    const outcome = await becameReady(started, cluster, deadlineMs).catch(async (error: unknown) => {
      await end();
      throw error;
    });
    if (outcome === 'ready') return started;
    await end();
    // What earlier starts have logged says nothing of this one.
    const log = tail(logFile, Math.min(3000, sizeOf(logFile) - logFrom));
    const portTaken = log.includes('could not bind') || log.includes('could not create any TCP/IP sockets');
    if (portTaken && wanted === 0 && attempt < BIND_ATTEMPTS) continue;
    throw portTaken
      ? new UserError('PORT_TAKEN', `Port ${port} for PostgreSQL is taken.`, {
          hint: 'Stop what listens there, or choose another port.',
          exit: 'configuration',
        })
      : new UserError(
          'POSTGRES_START_FAILED',
          `PostgreSQL ${outcome === 'timeout' ? `was not ready after ${deadlineMs} ms` : 'ended at its start'}:\n${log.trim()}`,
          {
            hint: `The whole log is ${logFile}. DATABASE_URL uses a PostgreSQL of your own instead.`,
            exit: 'unavailable',
          },
        );
  }
}

function spawnPostgres({ cluster, binaries, reach, temporary }: Plan, port: number, logFile: string): Started {
  const settings: Record<string, string> = {
    listen_addresses: HOST,
    port: String(port),
    unix_socket_directories: '',
    max_connections: '60',
    shared_buffers: '64MB',
    jit: 'off',
    logging_collector: 'off',
    log_min_messages: 'warning',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(temporary
      ? {
          fsync: 'off',
          synchronous_commit: 'off',
          full_page_writes: 'off',
          autovacuum: 'off',
          max_wal_size: '256MB',
          wal_level: 'minimal',
          max_wal_senders: '0',
        }
      : {}),
  };
  const flags = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
  // A file rather than a pipe: the log outlives the launcher, and nobody has to drain it.
  const log = openSync(logFile, 'a', 0o600);
  try {
    // Its own session: the terminal's Ctrl-C reaches the launcher alone, which then ends everything in order.
    const { cwd, name } = begins(reach, cluster);
    const child = spawn(binaries.postgres, ['-D', name, ...flags], {
      ...identity(binaries),
      cwd,
      detached: true,
      stdio: ['ignore', log, log],
      env: cleanEnvironment(),
    });
    const ended = new Promise<void>((done) => {
      child.once('exit', () => done());
      child.once('error', () => done());
    });
    if (child.pid === undefined)
      throw new UserError('POSTGRES_START_FAILED', `${binaries.postgres} could not be executed.`, { exit: 'unavailable' });
    return { child, pid: child.pid, port, ended };
  } finally {
    closeSync(log);
  }
}

async function becameReady({ child, pid }: Started, cluster: string, deadlineMs: number): Promise<'ready' | 'ended' | 'timeout'> {
  const until = performance.now() + deadlineMs;
  while (performance.now() < until) {
    if (child.exitCode !== null || child.signalCode !== null) return 'ended';
    const postmaster = readPostmaster(cluster);
    if (postmaster?.pid === pid && postmaster.status === 'ready') return 'ready';
    await sleep(10);
  }
  return 'timeout';
}

/** Line 1 of postmaster.pid is the pid, line 8 the status (`starting`, `ready`, ...). */
function readPostmaster(cluster: string): { pid: number; status: string } | undefined {
  let lines: string[];
  try {
    lines = readFileSync(join(cluster, 'postmaster.pid'), 'utf8').split('\n');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined; // none runs, or it has just ended
    throw error;
  }
  const pid = Number(lines[0]);
  return Number.isInteger(pid) && pid > 0 ? { pid, status: (lines[7] ?? '').trim() } : undefined;
}

async function createDatabase(url: string, deadlineMs: number): Promise<void> {
  const { default: pg } = await import('pg'); // servers and workers, which start no database, load none of it
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: deadlineMs, statement_timeout: deadlineMs });
  await client.connect();
  try {
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [DATABASE]);
    // file_copy is 5 times faster than wal_log with fsync off, and this happens once.
    if (rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE} STRATEGY file_copy`);
  } finally {
    await client.end();
  }
}

function identity({ runAs }: PostgresBinaries): { uid?: number; gid?: number } {
  return runAs ? { uid: runAs.uid, gid: runAs.gid } : {};
}

/** PG* variables of the user's own PostgreSQL must not reach ours. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' };
}

/** 0 where there is no such file. */
export const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;

/** The last `bytes` of a file as text. */
export function tail(file: string, bytes: number): string {
  if (!existsSync(file)) return '';
  const descriptor = openSync(file, 'r');
  try {
    const { size } = fstatSync(descriptor);
    const buffer = Buffer.alloc(Math.min(bytes, size));
    readSync(descriptor, buffer, 0, buffer.length, size - buffer.length);
    return buffer.toString('utf8');
  } finally {
    closeSync(descriptor);
  }
}
