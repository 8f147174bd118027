/** The programs that building the tensorflow engine needs, found and tried before anything is downloaded. Each refusal is one line of what to do. */
import { execFile } from 'node:child_process';
import { mkdirSync, statfsSync } from 'node:fs';
import { onPath, UserError } from '@paceline/runtime';

export interface Toolchain {
  readonly python: string;
  readonly npm: string;
  /** g++ or clang++. */
  readonly compiler: string;
}

const PROBE_DEADLINE_MS = 30_000;
const NODE_MAJORS = { oldest: 20, newest: 24 } as const;
const MIB = 2 ** 20;

export interface CommandOptions {
  readonly cwd?: string;
  readonly deadlineMs: number;
}

export class CommandError extends Error {
  override readonly name = 'CommandError';
}

/** @returns stdout @throws CommandError with the last lines of stderr */
export function runCommand(command: string, args: readonly string[], { cwd, deadlineMs }: CommandOptions): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(
      command,
      args,
      { cwd, timeout: deadlineMs, killSignal: 'SIGKILL', maxBuffer: 64 * MIB, encoding: 'utf8', env: { ...process.env, LC_ALL: 'C' } },
      (error, stdout, stderr) => {
        if (!error) return resolve(stdout);
        const said = stderr.trim().split('\n').filter(Boolean).slice(-3).join(' / ').slice(0, 600);
        reject(new CommandError(error.killed ? `no answer after ${Math.round(deadlineMs / 1000)} s` : said || error.message));
      },
    );
  });
}

function missing(what: string, hint: string): UserError {
  return new UserError('ENGINE_TOOL_MISSING', `The tensorflow engine cannot be built here: ${what}.`, { hint, exit: 'configuration' });
}

/** @throws UserError ENGINE_TOOL_MISSING */
export async function findToolchain(): Promise<Toolchain> {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < NODE_MAJORS.oldest || major > NODE_MAJORS.newest)
    throw missing(
      `Node ${process.versions.node} is not one of ${NODE_MAJORS.oldest} to ${NODE_MAJORS.newest}`,
      `Use Node ${NODE_MAJORS.oldest} to ${NODE_MAJORS.newest}; wasm works with this one.`,
    );
  const npm = onPath('npm');
  if (!npm) throw missing('npm is not on PATH', 'Install npm, which comes with Node.');
  return { python: await pythonWithPip(), npm, compiler: await workingCompiler() };
}

async function pythonWithPip(): Promise<string> {
  const python = onPath('python3');
  if (!python) throw missing('python3 is not on PATH', 'Install Python 3 with pip (Debian, Ubuntu: apt install python3-pip).');
  try {
    await runCommand(python, ['-m', 'pip', '--version'], { deadlineMs: PROBE_DEADLINE_MS });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    throw missing(`${python} has no pip`, 'Install it (Debian, Ubuntu: apt install python3-pip; others: python3 -m ensurepip).');
  }
  return python;
}

async function workingCompiler(): Promise<string> {
  for (const name of ['g++', 'clang++']) {
    const compiler = onPath(name);
    if (!compiler) continue;
    try {
      await runCommand(compiler, ['--version'], { deadlineMs: PROBE_DEADLINE_MS });
      return compiler;
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
    }
  }
  throw missing('there is no C++ compiler', 'Install g++ or clang++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++).');
}

/** @throws UserError ENGINE_NO_SPACE */
export function checkSpace(directory: string, neededBytes: number): void {
  mkdirSync(directory, { recursive: true });
  const { bavail, bsize } = statfsSync(directory);
  const freeBytes = Number(bavail) * Number(bsize);
  if (freeBytes >= neededBytes) return;
  const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  throw new UserError('ENGINE_NO_SPACE', `The tensorflow engine needs ${gib(neededBytes)} free in ${directory}; ${gib(freeBytes)} are.`, {
    hint: 'Make room there, or set XDG_CACHE_HOME or PACELINE_HOME to a folder on a larger disk.',
    exit: 'configuration',
  });
}
