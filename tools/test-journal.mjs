/**
 * A vitest reporter that writes what fails as it happens, one JSON object per line, to the file that PACELINE_TEST_JOURNAL names.
 * vitest's own report is written at the end: a run that crashes or is ended at its deadline has none, but it has this.
 *
 *     {begun: NAME}  {ended: NAME}  {failed: NAME, error}
 *     {file: NAME, tests, ms, cpuMs}: how long a file took, with what it imports and its hooks, and its processor time (tools/test-cpu.ts)
 */
import { appendFileSync } from 'node:fs';

/** @typedef {import('vitest/node').TestModule} TestModule */
/** @typedef {import('vitest/node').TestCase} TestCase */
/** @typedef {import('vitest/node').TestSuite} TestSuite */
/** @typedef {{ stack?: string | undefined, message?: string | undefined, cause?: unknown }} Fault */

/**
 * The message, the place in a file of ours, and the cause.
 * @param {readonly Fault[]} errors
 * @returns {string}
 */
function messageOf(errors) {
  return errors
    .map((error) => {
      const text = String(error.stack || error.message || error);
      const ours = text.split('\n').filter((line) => !/^\s+at .*(node_modules|node:|<anonymous>)/.test(line));
      return [...ours, ...(error.cause ? [messageOf([/** @type {Fault} */ (error.cause)])] : [])].join('\n');
    })
    .join('\n');
}

export default class TestJournal {
  #file = process.env.PACELINE_TEST_JOURNAL;

  /** @param {Record<string, string | number>} entry */
  #write(entry) {
    if (this.#file) appendFileSync(this.#file, `${JSON.stringify(entry)}\n`);
  }

  /** @param {TestModule} module */
  onTestModuleQueued(module) {
    this.#write({ begun: module.relativeModuleId });
  }

  /** @param {TestCase} test */
  onTestCaseReady(test) {
    this.#write({ begun: nameOf(test) });
  }

  /** @param {TestCase} test */
  onTestCaseResult(test) {
    const { state, errors = [] } = test.result();
    const name = nameOf(test);
    this.#write({ ended: name });
    if (state === 'failed') this.#write({ failed: name, error: messageOf(errors) });
  }

  /**
   * Hooks that fail, and files that cannot be loaded, belong to no test.
   * @param {TestSuite} suite
   */
  onTestSuiteResult(suite) {
    if (suite.errors().length > 0) this.#write({ failed: nameOf(suite), error: messageOf(suite.errors()) });
  }

  /** @param {TestModule} module */
  onTestModuleEnd(module) {
    this.#write({ ended: module.relativeModuleId });
    const { collectDuration, duration } = module.diagnostic();
    this.#write({
      file: module.relativeModuleId,
      tests: [...module.children.allTests()].length,
      ms: Math.round(collectDuration + duration),
      cpuMs: module.meta().cpuMs ?? 0,
    });
    if (module.errors().length > 0) this.#write({ failed: module.relativeModuleId, error: messageOf(module.errors()) });
  }

  /**
   * @param {readonly TestModule[]} _modules
   * @param {readonly Fault[]} errors
   */
  onTestRunEnd(_modules, errors) {
    if (errors.length > 0) this.#write({ failed: 'outside of every test', error: messageOf(errors) });
  }
}

/** @param {TestCase | TestSuite} entity */
const nameOf = (entity) => `${entity.module.relativeModuleId} > ${entity.fullName}`;
