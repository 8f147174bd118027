/**
 * `npm test`: the whole suite, in an order that fails fast, on two cores. `npm test -- api cluster` runs parts of it;
 * flags after the names go to vitest (`npm test -- cluster -t "killed worker"`). At the end it names the slowest files and what failed; the
 * last line is the sum of all parts.
 *
 * Everything it starts is in a process group of its own and is ended when it is interrupted or past its deadline,
 * first by SIGINT so that tests can clean up, then by SIGKILL.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { LANES, PARTS, countAgain, countCheck, countTests, failureLines, filesToRunAgain, slowestFiles, summary } from './test-parts.mjs';

const root = join(import.meta.dirname, '..');
const reports = mkdtempSync(join(tmpdir(), 'paceline-test-'));
const environment = { ...process.env, PATH: join(root, 'node_modules', '.bin') + delimiter + process.env.PATH };
const GRACE_MS = 8000;
/** The end of a part's output, kept to be shown again when the part fails without saying which test did. */
const OUTPUT_END_CHARACTERS = 8000;

/** Process groups that are running, by the pid of their first process. */
const running = new Set();
/** @type {Map<string, import('./test-parts.mjs').Count & {seconds: number}>} */
const results = new Map();
/** @typedef {import('./test-parts.mjs').Part} Part */
/** @typedef {{ alone: boolean, flags: readonly string[], files?: readonly string[] | undefined }} Options */
/**
 * What went wrong, for the end.
 * @type {string[]}
 */
const failures = [];
/** @type {{ part: Part, outcome: Outcome }[]} */
const again = [];
/** @type {(string | undefined)[]} */
const journals = [];
let interrupted = false;

/**
 * `pid` and everything that descends from it, groups of their own included (Linux; elsewhere the group has to do).
 * @param {number} pid
 */
function familyOf(pid) {
  if (!existsSync('/proc/self/stat')) return [pid];
  const childrenOf = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const parent = parentOf(entry);
    if (parent !== undefined) childrenOf.set(parent, [...(childrenOf.get(parent) ?? []), Number(entry)]);
  }
  const family = [pid];
  for (let i = 0; i < family.length; i++) family.push(...(childrenOf.get(family[i]) ?? []));
  return family;
}

/** @param {string} entry */
function parentOf(entry) {
  try {
    const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined; // it ended while we looked
  }
}

/**
 * @param {number} pid
 * @param {NodeJS.Signals} name
 */
function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH') throw error;
  }
}

/**
 * Ends a group and waits for it; what has not ended after the grace time is killed.
 * @param {number} pid
 * @returns {Promise<void>}
 */
function end(pid) {
  const family = familyOf(pid);
  signal(-pid, 'SIGINT');
  return new Promise((resolve) => {
    const deadline = Date.now() + GRACE_MS;
    const look = setInterval(() => {
      if (running.has(pid) && Date.now() < deadline) return;
      clearInterval(look);
      for (const member of family) signal(member, 'SIGKILL');
      resolve();
    }, 50);
  });
}

/**
 * Runs a command; its output is shown as it comes when it runs alone, and in one piece when others run beside it.
 * @param {readonly string[]} command
 * @param {{ alone: boolean, deadlineMs: number, env?: Record<string, string> }} options
 * @returns {Promise<{ status: number, outputEnd: string }>}
 */
function execute(command, { alone, deadlineMs, env = {} }) {
  return new Promise((resolve) => {
    const child = spawn(command[0], command.slice(1), {
      cwd: root,
      env: { ...environment, ...env },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const { pid } = child;
    if (pid !== undefined) running.add(pid);
    /** @type {(Buffer | string)[]} */
    const pieces = [];
    let outputEnd = '';
    /** @param {Buffer | string} piece */
    const take = (piece) => {
      outputEnd = (outputEnd + String(piece)).slice(-OUTPUT_END_CHARACTERS);
      if (alone) process.stdout.write(piece);
      else pieces.push(piece);
    };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    const timer = setTimeout(() => {
      take(`past its deadline of ${deadlineMs / 1000} s: ended\n`);
      if (pid !== undefined) void end(pid);
    }, deadlineMs);
    /** @param {number} status */
    const done = (status) => {
      clearTimeout(timer);
      if (pid !== undefined) running.delete(pid);
      if (!alone) process.stdout.write(Buffer.concat(pieces.map((piece) => Buffer.from(piece))));
      resolve({ status, outputEnd });
    };
    child.on('error', (error) => {
      take(`${command[0]}: ${error.message}\n`);
      done(127);
    });
    child.on('close', (code) => done(code ?? 1));
  });
}

/**
 * @param {Part} part
 * @param {readonly string[]} check
 * @param {boolean} alone
 * @returns {Promise<Outcome>}
 */
async function runCheck(part, check, alone) {
  const { status, outputEnd } = await execute(check, { alone, deadlineMs: part.deadlineMs });
  return { count: countCheck(status), output: outputEnd };
}

/** @typedef {import('./test-parts.mjs').Report} Report */
/** @typedef {{ count: import('./test-parts.mjs').Count, output: string, report?: Report | undefined, journal?: string | undefined }} Outcome */

/**
 * A report that vitest was ended in the middle of is none.
 * @param {string | undefined} report
 */
function parsed(report) {
  try {
    return report && JSON.parse(report);
  } catch {
    return undefined;
  }
}

/**
 * @param {Part} part
 * @param {Options} options
 * @returns {Promise<Outcome>}
 */
async function runTests(part, { alone, flags, files = part.files ?? [] }) {
  const folder = mkdtempSync(join(reports, `${part.name}-`));
  const [file, journalFile] = [join(folder, 'report.json'), join(folder, 'journal')];
  const reporters = ['default', 'json', join(import.meta.dirname, 'test-journal.mjs')].map((name) => `--reporter=${name}`);
  const command = ['vitest', 'run', ...(part.tests ?? []), ...files, ...reporters, `--outputFile.json=${file}`, ...flags];
  const { status, outputEnd } = await execute(command, {
    alone,
    deadlineMs: part.deadlineMs,
    env: { ...part.env, PACELINE_TEST_JOURNAL: journalFile, ...(part.needsBuild ? { PACELINE_BUILT: '1' } : {}) },
  });
  /** @param {string} path */
  const text = (path) => (existsSync(path) ? readFileSync(path, 'utf8') : undefined);
  const report = parsed(text(file));
  return { count: countTests(report, status), report, journal: text(journalFile), output: outputEnd };
}

/**
 * @param {Part} part
 * @param {Options} options
 */
async function runPart(part, { alone, flags }) {
  if (interrupted) return;
  const started = Date.now();
  if (alone) console.log(`\n── ${part.name}: ${part.holds}`);
  const outcome = await (part.check ? runCheck(part, part.check, alone) : runTests(part, { alone, flags }));
  const { count, journal } = outcome;
  const seconds = (Date.now() - started) / 1000;
  results.set(part.name, { ...count, seconds });
  journals.push(journal);
  const isRunAgain = process.env.CI !== undefined && part.check === undefined && count.failed > 0;
  if (isRunAgain) again.push({ part, outcome });
  const failedWord = isRunAgain ? 'failed beside other work' : 'FAILED';
  failures.push(...failureLines({ name: part.name, failed: count.failed, failedWord, ...outcome }));
  if (!alone) console.log(`── ${part.name}: ${count.failed === 0 ? 'holds' : 'FAILED'} after ${seconds.toFixed(1)} s`);
}

/**
 * On a shared machine that stands still for seconds a deadline may pass by itself: the files that failed there run once more, alone. The first error stays in the log.
 * @param {{ part: Part, outcome: Outcome }} failed
 * @param {readonly string[]} flags
 */
async function runAgain({ part, outcome: { report } }, flags) {
  if (interrupted) return;
  const started = Date.now();
  const files = filesToRunAgain(report, root);
  console.log(`\n── ${part.name}, again: ${files?.join(' ') ?? 'all of it'}`);
  const second = await runTests(part, { alone: true, flags, files });
  const count = countAgain(report, second.count, files === undefined);
  const seconds = (results.get(part.name)?.seconds ?? 0) + (Date.now() - started) / 1000;
  results.set(part.name, { ...count, seconds, notes: [...count.notes, `run again: ${files?.join(' ') ?? 'all of it'}`] });
  failures.push(...failureLines({ name: part.name, failed: count.failed, ...second }));
}

/** True when every package of the lockfile that this platform needs lies in node_modules. */
function installIsComplete() {
  if (!existsSync(join(root, 'node_modules'))) return false;
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  return Object.entries(packages).every(
    ([path, entry]) => !path.includes('node_modules/') || entry.optional || entry.devOptional || entry.peer || existsSync(join(root, path)),
  );
}

function install() {
  console.log('node_modules is missing or incomplete: npm ci');
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) throw new Error(`npm ci failed with status ${status}: the suite cannot run without its packages`);
}

/** @param {readonly string[]} names */
function choose(names) {
  const unknown = names.filter((name) => !PARTS.some((part) => part.name === name));
  if (unknown.length > 0) {
    console.error(
      `no part is called ${unknown.join(', ')}; there are:\n${PARTS.map((part) => `  ${part.name.padEnd(10)}${part.holds}`).join('\n')}`,
    );
    process.exit(2);
  }
  const wanted = PARTS.filter((part) => (names.length === 0 ? !part.onlyByName : names.includes(part.name)));
  if (wanted.some(({ name }) => name === 'build') || !wanted.some((part) => part.needsBuild)) return wanted;
  return [...PARTS.filter(({ name }) => name === 'build'), ...wanted];
}

const NOT_BUILT = { passed: 0, failed: 1, skipped: 0, notes: ['not run: the build failed'], seconds: 0 };

/**
 * A part is not run when the build that it starts processes from has failed.
 * @param {Part} part
 */
const blocked = (part) => part.needsBuild && results.get('build')?.failed;

/**
 * What fills the machine alone and in turn, then as many parts at a time as there are lanes: a lane that is free takes the next part.
 * @param {readonly Part[]} parts
 * @param {readonly string[]} flags
 */
async function runAll(parts, flags) {
  const [filling, waiting] = [parts.filter((part) => part.fillsTheMachine), parts.filter((part) => !part.fillsTheMachine)];
  for (const part of filling) await runPart(part, { alone: true, flags });
  const alone = waiting.length === 1;
  const lane = async () => {
    for (let part = waiting.shift(); part; part = waiting.shift()) {
      if (blocked(part)) results.set(part.name, NOT_BUILT);
      else await runPart(part, { alone, flags });
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  for (const failed of again) await runAgain(failed, flags);
}

/**
 * @param {readonly Part[]} parts
 * @param {number} startedMs
 */
function report(parts, startedMs) {
  console.log('\npart        passed  failed  skipped  seconds');
  for (const { name } of parts) {
    const count = results.get(name) ?? { passed: 0, failed: 1, skipped: 0, notes: ['not run: interrupted'], seconds: 0 };
    results.set(name, count);
    const row = [count.passed, count.failed, count.skipped].map((n) => String(n).padStart(7)).join(' ');
    console.log(`${name.padEnd(11)}${row} ${count.seconds.toFixed(1).padStart(9)}${count.notes.map((note) => `  ${note}`).join(';')}`);
  }
  const slowest = slowestFiles(journals);
  if (slowest.length > 0) console.log(`\nthe slowest files: seconds, and seconds of processor time\n${slowest.join('\n')}\n`);
  if (failures.length > 0) console.log(`\n${failures.join('\n')}\n`);
  console.log(`in ${((Date.now() - startedMs) / 1000).toFixed(0)} s`);
}

for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(name, () => {
    if (interrupted) return;
    interrupted = true;
    void Promise.all([...running].map(end));
  });
}

const startedMs = Date.now();
const words = process.argv.slice(2);
const firstFlag = words.findIndex((word) => word.startsWith('-'));
const parts = choose(firstFlag < 0 ? words : words.slice(0, firstFlag));
try {
  if (!installIsComplete()) install();
  await runAll(parts, firstFlag < 0 ? [] : words.slice(firstFlag));
} finally {
  rmSync(reports, { recursive: true, force: true });
}
report(parts, startedMs);
const counts = [...results.values()];
process.exitCode = interrupted ? 130 : counts.some((count) => count.failed > 0) ? 1 : 0;
console.log(summary(counts));
