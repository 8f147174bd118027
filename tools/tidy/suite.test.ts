/** The suite's own arithmetic: a broken part must never look green. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PARTS, countCheck, countTests, summary } from '../test-parts.mjs';
import { repositoryRoot } from './tree.js';

const report = (passed: number, failed: number, files: { status: string; assertionResults: unknown[]; name: string }[] = []) => ({
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

it('the last line is the sum', () => {
  const count = (passed: number, failed: number, skipped: number) => ({ passed, failed, skipped, notes: [] });
  expect(summary([count(3, 0, 0), count(4, 1, 0)])).toBe('7 passed, 1 failed');
  expect(summary([count(3, 0, 2)])).toBe('3 passed, 0 failed, 2 skipped');
});

it('every folder below test/ is a part', () => {
  const folders = readdirSync(join(repositoryRoot, 'test'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const parts = PARTS.flatMap((part) => part.tests ?? []).join(' ');
  expect(folders.filter(({ name }) => !parts.includes(`test/${name}/`)).map(({ name }) => name)).toEqual([]);
});
