/**
 * The parts of the suite and how their results are counted. tools/test.mjs runs them; a part is either a `check`
 * (a command that holds or does not, counted as one) or a set of vitest tests.
 */
import { relative } from 'node:path';

/**
 * @typedef {object} Part
 * @property {string} name what `npm test -- NAME` runs alone
 * @property {string} holds one line on what it checks
 * @property {string[]} [check] a command whose exit status is the result
 * @property {string[]} [tests] arguments for `vitest run`, without the files
 * @property {string[]} [files] which ones: folders or files; all of its configuration when left out
 * @property {boolean} [fillsTheMachine] it computes on all cores, so nothing runs beside it
 * @property {boolean} [needsBuild] it starts built processes
 * @property {boolean} [onlyByName] no part of a full run
 * @property {Record<string, string>} [env]
 * @property {number} deadlineMs the part is ended after this long and counts as failed
 */

const SECOND_MS = 1000;
const UNIT = ['--config', 'vitest.config.ts'];
const WHOLE_TREE = ['--config', 'test/vitest.config.ts'];
/** For tests that mostly wait: files side by side, each with databases and processes of its own. */
const filesAtATime = (/** @type {number} */ count) => ['--fileParallelism', `--maxWorkers=${count}`];
/** Files whose tests leave nothing behind in their process take turns in it, and share what it has imported: for an api that is most of its start. */
const TOGETHER = '--no-isolate';

/** Sweeps read it: as many seeds and cases as a night has time for. */
const MANY = { PACELINE_SOAK: '1' };

/** @type {Part[]} in the order of a full run: what fails fast comes first, then what takes long, so that short parts fill the ends of the lanes */
export const PARTS = [
  {
    name: 'build',
    holds: 'kernels, libraries, processes and dashboard compile; their types are checked by lint',
    check: ['node', 'tools/build.mjs', '--unchecked'],
    fillsTheMachine: true,
    deadlineMs: 900 * SECOND_MS,
  },
  {
    name: 'format',
    holds: 'oxfmt has nothing to change',
    check: ['oxfmt', '--check'],
    fillsTheMachine: true,
    deadlineMs: 900 * SECOND_MS,
  },
  {
    name: 'lint',
    holds: 'tests, tools and benches satisfy the compiler too; import directions, promises, sizes',
    check: ['node', 'tools/lint.mjs'],
    deadlineMs: 900 * SECOND_MS,
  },
  {
    name: 'unit',
    holds: 'tests beside the code',
    tests: UNIT,
    fillsTheMachine: true,
    deadlineMs: 2160 * SECOND_MS,
  },
  {
    name: 'api',
    holds: 'GraphQL and REST on real PostgreSQL and Redis',
    tests: [...WHOLE_TREE, ...filesAtATime(2), TOGETHER],
    files: ['test/api/'],
    needsBuild: true,
    deadlineMs: 1800 * SECOND_MS,
  },
  {
    name: 'cluster',
    holds: 'real processes, with faults',
    tests: [...WHOLE_TREE, ...filesAtATime(2), TOGETHER],
    files: ['test/cluster/'],
    needsBuild: true,
    deadlineMs: 2700 * SECOND_MS,
  },
  {
    name: 'cli',
    holds: 'the command line as people use it',
    tests: [...WHOLE_TREE, ...filesAtATime(2), TOGETHER],
    files: ['test/cli/'],
    needsBuild: true,
    deadlineMs: 1440 * SECOND_MS,
  },
  {
    name: 'web',
    holds: 'the dashboard in headless Chromium',
    tests: [...WHOLE_TREE, TOGETHER],
    files: ['test/web/'],
    needsBuild: true,
    deadlineMs: 1440 * SECOND_MS,
  },
  {
    name: 'bench',
    holds: 'every bench runs, in tiny sizes',
    tests: WHOLE_TREE,
    files: ['test/bench/'],
    needsBuild: true,
    deadlineMs: 1260 * SECOND_MS,
  },
  {
    name: 'numerics',
    holds: 'equal bits, and agreement with the independent reference',
    tests: WHOLE_TREE,
    files: ['test/numerics/'],
    needsBuild: true,
    deadlineMs: 1260 * SECOND_MS,
  },
  {
    name: 'tidy',
    holds: 'house rules, docs, deployment files',
    tests: [...WHOLE_TREE, TOGETHER],
    files: ['tools/'],
    deadlineMs: 900 * SECOND_MS,
  },
  {
    name: 'soak',
    holds: 'longer runs on real processes: fault rows, standbys, asynchronous modes, memory, leaks; only when it is named',
    tests: WHOLE_TREE,
    files: ['test/soak/'],
    needsBuild: true,
    deadlineMs: 7200 * SECOND_MS,
    onlyByName: true,
  },
  {
    name: 'seeds',
    holds:
      'the sweeps of the simulator, with many seeds, of deaths in an all-reduce, a million frames and a million encoded chunks with mistakes, the library in more processes; only when it is named',
    tests: UNIT,
    files: [
      'libs/testkit/src/simulator/',
      'libs/hosting/src/server/fuzz-frames.test.ts',
      'libs/hosting/src/server/credit-windows.test.ts',
      'libs/hosting/src/server/table-store.test.ts',
      'libs/ingest/src/hostile.test.ts',
      'libs/codecs/src/mutated.test.ts',
      'libs/exchange/src/transfer/rows.test.ts',
      'libs/exchange/src/transports/hostile.test.ts',
      'libs/hosting/src/mutated-parameters.test.ts',
      'libs/collectives/src/group-deaths.test.ts',
      'libs/strategies/src/',
      'apps/cli/src/verify/library.test.ts',
    ],
    env: MANY,
    deadlineMs: 3600 * SECOND_MS,
    onlyByName: true,
  },
  {
    name: 'cases',
    holds:
      'every operation of the API with many cases of odd input, every kind of layer on a software GPU, every tutorial, the package by npm, every codec with a worker that dies, what the parts api, cluster, cli and bench leave out; only when it is named',
    tests: [
      ...WHOLE_TREE,
      'test/numerics/webgpu.test.ts',
      'test/cli/tutorials.test.ts',
      'test/cli/package.test.ts',
      'test/cli/start.test.ts',
      'test/cluster/bits.test.ts',
      'test/cluster/datasets.test.ts',
      'test/cluster/checkpoints.test.ts',
      'test/cluster/hostile-payloads.test.ts',
      'test/cluster/system',
      'test/cluster/auto-strategy.test.ts',
      'test/cluster/compute-threads.test.ts',
      'test/cluster/one-worker.test.ts',
      'test/cli/stack.test.ts',
      'test/cli/engine-install.test.ts',
      'test/cli/export.test.ts',
      'test/api/stopped-api.test.ts',
      'test/web/datasets.test.ts',
      'test/bench/benches.test.ts',
    ],
    files: ['test/api/no-untyped-fault.test.ts'],
    needsBuild: true,
    env: MANY,
    deadlineMs: 3600 * SECOND_MS,
    onlyByName: true,
  },
];

/**
 * Parts that run at a time, on two cores, behind those that fill the machine: some of their time they wait for processes. With a third the processes
 * would displace each other, and the same tests take 1.5 times the processor time. No test may depend on having a core for itself.
 */
export const LANES = 2;

/**
 * @typedef {{passed: number, failed: number, skipped: number, notes: string[]}} Count
 */

/** @typedef {{ status: string, assertionResults: readonly { status: string }[], name: string }} FileReport */
/**
 * @typedef {{ numPassedTests: number, numFailedTests: number, numPendingTests: number, numTodoTests: number, testResults: readonly FileReport[] }} Report
 */

/** @param {number} exitStatus @returns {Count} */
export function countCheck(exitStatus) {
  return exitStatus === 0 ? { passed: 1, failed: 0, skipped: 0, notes: [] } : { passed: 0, failed: 1, skipped: 0, notes: [] };
}

/**
 * Counts a vitest JSON report. A file that could not be loaded, a run that ended badly although no test failed, and a
 * part without a test are failures too: each is how a broken suite looks green.
 * @param {Report | undefined} report parsed, or undefined when vitest wrote none
 * @param {number} exitStatus
 * @returns {Count}
 */
export function countTests(report, exitStatus) {
  if (!report) return { passed: 0, failed: 1, skipped: 0, notes: ['vitest wrote no report'] };
  /** @type {Count} */
  const count = {
    passed: report.numPassedTests,
    failed: report.numFailedTests,
    skipped: report.numPendingTests + report.numTodoTests,
    notes: [],
  };
  const unloaded = report.testResults.filter((file) => file.status === 'failed' && file.assertionResults.length === 0);
  for (const file of unloaded) count.notes.push(`could not load ${file.name}`);
  count.failed += unloaded.length;
  if (count.passed + count.failed === 0) {
    count.notes.push('ran no test');
    count.failed = 1;
  } else if (exitStatus !== 0 && count.failed === 0) {
    count.notes.push(`vitest ended with status ${exitStatus} although no test failed (an unhandled error?)`);
    count.failed = 1;
  }
  return count;
}

/**
 * What is run again, alone on the machine, after a part with failures: a deadline that passed beside other work does not pass twice, and what is
 * broken fails twice.
 * @param {Report | undefined} report of the run that failed
 * @param {string} root
 * @returns {string[] | undefined} the files with failures; undefined where none is to blame, which means all files of the part
 */
export function filesToRunAgain(report, root) {
  const failed = report?.testResults.filter(({ status }) => status === 'failed').map(({ name }) => relative(root, name)) ?? [];
  return failed.length > 0 ? failed : undefined;
}

/**
 * The sum of a part in which some files were run again. Their second results count; `failureLines` has told the first errors already.
 * @param {Report | undefined} first
 * @param {Count} second of the files that were run again
 * @param {boolean} isWhole all files were
 * @returns {Count}
 */
export function countAgain(first, second, isWhole) {
  if (isWhole || !first) return second;
  const kept = first.testResults.filter(({ status }) => status !== 'failed').flatMap(({ assertionResults }) => assertionResults);
  /** @param {boolean} hasPassed */
  const keptWhere = (hasPassed) => kept.filter(({ status }) => (status === 'passed') === hasPassed).length;
  return { ...second, passed: second.passed + keptWhere(true), skipped: second.skipped + keptWhere(false) };
}

const SLOWEST = 10;

/** The entries of a journal that are whole: vitest may have been ended in the middle of one. */
/** @param {string | undefined} journal */
const entriesOf = (journal = '') =>
  journal
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line));

/** @param {number} ms */
const inSeconds = (ms) => (ms / SECOND_MS).toFixed(1).padStart(9);

/**
 * The slowest files of all parts, so that growth is seen: how long each took, and its processor time. Others ran beside them: a file is slower here than alone.
 * @param {readonly (string | undefined)[]} journals lines of tools/test-journal.mjs
 * @returns {string[]} lines; none where no file ran
 */
export function slowestFiles(journals) {
  /** @type {{ file: string, tests: number, ms: number, cpuMs: number }[]} */
  const files = journals.flatMap(entriesOf).filter(({ file }) => file !== undefined);
  const slowest = files.sort((a, b) => b.ms - a.ms).slice(0, SLOWEST);
  return slowest.map(
    ({ file, tests, ms, cpuMs }) => `${inSeconds(ms)}${inSeconds(cpuMs)}  ${file} (${tests} ${tests === 1 ? 'test' : 'tests'})`,
  );
}

const ERROR_LINES = 8;
const LINE_CHARACTERS = 300;

/** The first lines of an error or the last ones of an output, without colours, each of bounded length. */
/** @param {readonly string[]} lines */
const shortened = (lines) => lines.filter((line) => line.trim() !== '').map((line) => `    ${line.trimEnd().slice(0, LINE_CHARACTERS)}`);
/** @param {string} text */
const plainLines = (text) => text.replace(/\u001b\[[0-9;]*m/g, '').split('\n');

/**
 * What went wrong in a part, for the end of a log that somebody else reads: names and the first lines of each error. The
 * journal is whole up to the moment at which vitest crashed or was ended, and tells what it was doing then.
 * @param {{name: string, failed: number, journal?: string | undefined, output: string, failedWord?: string}} part journal: lines of tools/test-journal.mjs; output: its end
 * @returns {string[]} lines; none for a part in which nothing failed
 */
export function failureLines({ name, failed, journal, output, failedWord = 'FAILED' }) {
  const entries = entriesOf(journal);
  /** @type {string[]} */
  const lines = [];
  /**
   * @param {string} what
   * @param {string} text
   */
  const tell = (what, text) => lines.push(`${name}: ${what}`, ...shortened(plainLines(text)).slice(0, ERROR_LINES));
  for (const entry of entries) {
    if (entry.failed) tell(`${failedWord} ${entry.failed}`, entry.error);
  }
  const ended = new Set(entries.map((entry) => entry.ended));
  for (const { begun } of entries) if (begun && !ended.has(begun)) tell(`${failedWord} ${begun}`, 'it had not ended when vitest did');
  if (failed > 0 && !lines.some((line) => line.startsWith(`${name}: ${failedWord}`)))
    lines.push(`${name}: ${failedWord}, and this is the end of what it wrote`, ...shortened(plainLines(output)).slice(-2 * ERROR_LINES));
  return lines;
}

/** @param {Count[]} counts */
export function summary(counts) {
  /** @param {'passed' | 'failed' | 'skipped'} key */
  const sum = (key) => counts.reduce((total, count) => total + count[key], 0);
  const skipped = sum('skipped');
  return `${sum('passed')} passed, ${sum('failed')} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}
