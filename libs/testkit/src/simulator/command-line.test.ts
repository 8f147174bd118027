import { expect, test } from 'vitest';
import { USAGE, UsageError, parseCommand } from './command-line.js';

test('a seed alone is one seed, many begin with 1, and threads are never more than seeds', () => {
  expect(parseCommand(['--seed', '4711'])).toMatchObject({
    first: 4711,
    seeds: 1,
    jobs: 1,
    check: undefined,
    mode: undefined,
    json: false,
  });
  expect(parseCommand([])).toMatchObject({ first: 1, seeds: 1_000 });
  expect(parseCommand('--seeds 3 --seed 50000 --check safety --mode ssp --jobs 8 --json'.split(' '))).toEqual({
    first: 50_000,
    seeds: 3,
    jobs: 3,
    check: 'safety',
    mode: 'ssp',
    json: true,
  });
});

test.each([
  [['--sedes', '3'], /--sedes/u],
  [['3'], /3/u],
  [['--seeds'], /--seeds/u],
  [['--seeds', '-1'], /--seeds/u],
  [['--seeds', '0'], /--seeds 0: a whole number is needed/u],
  [['--jobs', 'two'], /--jobs two: a whole number is needed/u],
  [['--mode', 'bsp'], /--mode bsp: use sync, async, ssp/u],
  [['--check', 'all'], /--check all: use safety, liveness/u],
])('%j is refused in one line that names the flag', (args, line) => {
  let message = '';
  try {
    parseCommand(args);
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    ({ message } = error as Error);
  }
  expect(message).toMatch(line);
  expect(message).not.toContain('\n');
});

test('the usage names every flag', () => {
  expect(parseCommand(['--help'])).toBe('help');
  for (const flag of ['seeds', 'seed', 'mode', 'check', 'jobs', 'json', 'help']) expect(USAGE).toContain(`--${flag} `);
});
