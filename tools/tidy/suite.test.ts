/** The suite's own arithmetic: a broken part must never look green. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LONGEST, longestFirst } from '../longest-first.js';
import { PARTS, countAgain, countCheck, countTests, failureLines, filesToRunAgain, slowestFiles, summary } from '../test-parts.mjs';
import { repositoryRoot } from './tree.js';

const report = (
  passed: number,
  failed: number,
  files: { status: string; assertionResults: { status: string }[]; name: string }[] = [],
) => ({
  numPassedTests: passed,
  numFailedTests: failed,
  numPendingTests: 0,
  numTodoTests: 0,
  testResults: files,
});

describe('a part counts', () => {
  it('what passed and failed', () => {
    expect(countTests(report(5, 2), 1)).toMatchObject({ passed: 5, failed: 2, notes: [] });
  });
  it('a file that could not be loaded as a failure', () => {
    expect(countTests(report(5, 0, [{ status: 'failed', assertionResults: [], name: 'broken.test.ts' }]), 1)).toMatchObject({
      passed: 5,
      failed: 1,
      notes: ['could not load broken.test.ts'],
    });
  });
  it('no test at all as a failure', () => {
    expect(countTests(report(0, 0), 0)).toMatchObject({ failed: 1, notes: ['ran no test'] });
  });
  it('an end in error without a failed test as a failure', () => {
    expect(countTests(report(3, 0), 1)).toMatchObject({ passed: 3, failed: 1 });
  });
  it('a missing report as a failure', () => {
    expect(countTests(undefined, 0)).toMatchObject({ failed: 1 });
  });
  it('a check by its exit status', () => {
    expect([countCheck(0), countCheck(2)]).toMatchObject([
      { passed: 1, failed: 0 },
      { passed: 0, failed: 1 },
    ]);
  });
});

describe('what failed is run again', () => {
  const [passed, skipped] = [{ status: 'passed' }, { status: 'pending' }];
  const files = [
    { status: 'passed', assertionResults: [passed, passed, skipped], name: '/tree/test/a.test.ts' },
    { status: 'failed', assertionResults: [passed, { status: 'failed' }], name: '/tree/test/b.test.ts' },
  ];
  const first = report(3, 1, files);
  it('by the files with failures, and as a whole where none is to blame', () => {
    expect(filesToRunAgain(first, '/tree')).toEqual(['test/b.test.ts']);
    expect([filesToRunAgain(undefined, '/tree'), filesToRunAgain(report(3, 0, files.slice(0, 1)), '/tree')]).toEqual([
      undefined,
      undefined,
    ]);
  });
  it('and its second results replace the first ones of these files only', () => {
    const green = countTests(report(2, 0), 0);
    expect(countAgain(first, green, false)).toMatchObject({ passed: 4, failed: 0, skipped: 1 });
    expect(countAgain(first, countTests(report(1, 1), 1), false)).toMatchObject({ passed: 3, failed: 1, skipped: 1 });
    expect(countAgain(first, green, true)).toMatchObject({ passed: 2, failed: 0 });
  });
});

describe('at the end of the log stands', () => {
  const journal = (...entries: object[]) => entries.map((entry) => JSON.stringify(entry)).join('\n');
  const lines = (failed: number, text: string, output = '') => failureLines({ name: 'api', failed, journal: text, output });
  it('nothing about a part that holds', () => {
    expect(lines(0, journal({ begun: 'a' }, { ended: 'a' }), 'all is well')).toEqual([]);
  });
  it('the name and the first lines of the error of every test that failed, without colours', () => {
    const error = ['\u001b[31mAssertionError\u001b[39m: expected 1 to be 2', '', ...Array.from({ length: 50 }, () => '  at a line')].join(
      '\n',
    );
    const told = lines(1, journal({ begun: 'a' }, { ended: 'a' }, { failed: 'a', error }));
    expect(told.slice(0, 3)).toEqual(['api: FAILED a', '    AssertionError: expected 1 to be 2', '      at a line']);
    expect(told.length).toBeLessThan(12);
  });
  it('what was running when vitest crashed, though the last line of its journal is torn', () => {
    expect(lines(1, `${journal({ begun: 'a' }, { ended: 'a' }, { begun: 'b' })}\n{"beg`, 'killed')[0]).toBe('api: FAILED b');
  });
  it('the end of the output of what failed without a word', () => {
    expect(lines(1, '', 'first\n\nlast\n')).toEqual(['api: FAILED, and this is the end of what it wrote', '    first', '    last']);
  });
});

it('the slowest ten files of all parts are told, the slowest first, also of a part whose journal is torn', () => {
  const file = (name: string, ms: number, tests = 2) => JSON.stringify({ file: name, tests, ms, cpuMs: ms / 2 });
  const quick = Array.from({ length: 20 }, (_, i) => file(`quick${i}`, i)).join('\n');
  const told = slowestFiles([`${quick}\n${file('slow', 61_240, 1)}\n{"ended":"x"}\n{"file":"to`, undefined, file('slower', 100_000)]);
  expect(told).toHaveLength(10);
  expect(told.slice(0, 3)).toEqual([
    '    100.0     50.0  slower (2 tests)',
    '     61.2     30.6  slow (1 test)',
    '      0.0      0.0  quick19 (2 tests)',
  ]);
  expect(slowestFiles([undefined, ''])).toEqual([]);
});

it('the last line is the sum', () => {
  const count = (passed: number, failed: number, skipped: number) => ({ passed, failed, skipped, notes: [] });
  expect(summary([count(3, 0, 0), count(4, 1, 0)])).toBe('7 passed, 1 failed');
  expect(summary([count(3, 0, 2)])).toBe('3 passed, 0 failed, 2 skipped');
});

it('every folder below test/ is a part', () => {
  const folders = readdirSync(join(repositoryRoot, 'test'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const parts = PARTS.flatMap((part) => part.files ?? []).join(' ');
  expect(folders.filter(({ name }) => !parts.includes(`test/${name}/`)).map(({ name }) => name)).toEqual([]);
});

it('what a part names is there, and folders alone end with a slash: vitest finds no file behind one', () => {
  const named = PARTS.flatMap((part) => part.files ?? []);
  expect(named.filter((path) => statSync(join(repositoryRoot, path.replace(/\/$/u, ''))).isDirectory() !== path.endsWith('/'))).toEqual([]);
});

it('files that take long begin first, in the order in which they are named, and each of them is there', () => {
  expect(LONGEST.filter((name) => !statSync(join(repositoryRoot, name), { throwIfNoEntry: false })?.isFile())).toEqual([]);
  const [first, second] = LONGEST.map((name) => ({ moduleId: join(repositoryRoot, name) })) as [{ moduleId: string }, { moduleId: string }];
  const [one, other] = [{ moduleId: '/tree/one.test.ts' }, { moduleId: '/tree/other.test.ts' }];
  expect(longestFirst([one, second, other, first])).toEqual([first, second, one, other]);
});
