import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { PacelineClient, RunSummary } from '@paceline/client';
import { afterAll, describe, expect, it } from 'vitest';
import { writeWeights } from './commands/results.js';
import { didYouMean } from './did-you-mean.js';
import { COMMAND_GROUPS } from './program.js';
import { printRuns } from './show-run.js';
import { localTime, percent, plural, shortTime } from './terminal/format.js';
import { asTyped, COMMAND_NAMES, programName } from './terminal/pasteable.js';
import { createTerminal } from './terminal/terminal.js';
import { whichRun } from './which-run.js';

const folder = mkdtempSync(join(tmpdir(), 'paceline-which-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ID = '01a204e6-9dfe-73da-849e-97eed0a2eb67';
const run = (changes: Partial<RunSummary> = {}): RunSummary => ({
  id: ID,
  name: 'first try',
  status: 'RUNNING',
  statusReason: null,
  statusChangedAt: '',
  attempt: 1,
  restartsLeft: 5,
  workersWanted: 4,
  createdAt: new Date(0).toISOString(),
  startedAt: null,
  finishedAt: null,
  parameterCount: 1,
  result: null,
  traffic: null,
  progress: {
    phase: 'training',
    round: 3,
    totalRounds: 9,
    epoch: 0,
    totalEpochs: 1,
    loss: 0.25,
    accuracy: 0.9961,
    values: { loss: 0.01, accuracy: 0.9961 },
    validation: null,
    examplesPerSecond: 10,
    etaSeconds: null,
    workers: 1,
    replicas: 4,
    waitingFor: null,
  },
  ...changes,
});

describe('a run', () => {
  const knows = (...runs: RunSummary[]): PacelineClient => ({ runsMeant: () => Promise.resolve(runs) }) as unknown as PacelineClient;

  it('is asked for only when its whole id was not typed', async () => {
    expect(await whichRun(undefined as unknown as PacelineClient, ID)).toBe(ID);
    expect(await whichRun(knows(run()), 'first try')).toBe(ID);
  });

  it('that is none, or one of several, is refused with what there is', async () => {
    await expect(whichRun(knows(), 'nothing')).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'There is no run nothing.' });
    await expect(whichRun(knows(), '@last')).rejects.toMatchObject({ message: 'Your team has no run yet.' });
    await expect(whichRun(knows(run(), run({ name: 'b\u001b[2J' })), '01a2', 60_000)).rejects.toMatchObject({
      code: 'RUN_AMBIGUOUS',
      message: '01a2 fits several runs, newest first:\n  d0a2eb67  first try  RUNNING  1 min ago\n  d0a2eb67  b  RUNNING  1 min ago',
    });
  });

  it('is listed with what its numbers were measured on', () => {
    let text = '';
    const stream = { isTTY: false, columns: () => 200, write: (more: string) => void (text += more) };
    const measured = {
      loss: 0.117,
      accuracy: 0.9625,
      meanAbsoluteError: null,
      meanSquaredError: null,
      values: { loss: 0.117, accuracy: 0.9625 },
      weightsRound: 235,
    };
    const result = { ...measured, rounds: 9, examplesPerSecond: 20, trainedExamples: 9, trainingMs: 1 };
    const over = run({ status: 'SUCCEEDED', result: { ...result, weightsSha256: 'a', weightsUrl: null } });
    printRuns([run(), over], createTerminal({ json: false, debug: false }, {}, stream, stream), 0);
    expect(text.split('\n').slice(1, 3)).toEqual([
      'd0a2eb67  first try  RUNNING      3/9  0.2500 train  99.61 % train          10  0 s ago',
      'd0a2eb67  first try  SUCCEEDED    3/9   0.1170 test   96.25 % test          20  0 s ago',
    ]);
  });
});

describe('hints', () => {
  it('say what is typed here', () => {
    expect(programName({ npm_command: 'exec', PATH: folder })).toBe('npx paceline');
    expect(programName({ PATH: folder })).toBe('npx paceline');
    writeFileSync(join(folder, 'paceline'), '', { mode: 0o755 });
    expect(programName({ PATH: `/nowhere:${folder}` })).toBe('paceline');
    const text = '`paceline up` starts one; see: paceline runs --all, or npx paceline train. Of paceline itself: paceline --help';
    expect(asTyped(text, 'npx paceline')).toBe(
      '`npx paceline up` starts one; see: npx paceline runs --all, or npx paceline train. Of paceline itself: npx paceline --help',
    );
    expect(asTyped(text, 'paceline')).toBe(text.replace('npx ', ''));
  });

  it('know every command', () => {
    expect([...COMMAND_NAMES].sort()).toEqual(COMMAND_GROUPS.flatMap(({ commands }) => Object.keys(commands)).sort());
  });

  it('name the word that was meant, when one is near', () => {
    const words = ['sgd', 'momentum', 'adam'];
    expect([didYouMean('adamw', words), didYouMean('nmae', ['name']), didYouMean('epoch', ['epochs'])]).toEqual(['adam', 'name', 'epochs']);
    expect([didYouMean('lamb', words), didYouMean('', words), didYouMean('zzz', ['run'])]).toEqual([undefined, undefined, undefined]);
  });
});

it('numbers have units and times a date', () => {
  expect([plural(1, 'worker'), plural(2, 'round'), plural(0, 'replica'), plural(12_345, 'example')]).toEqual([
    ...['1 worker', '2 rounds', '0 replicas', '12.3k examples'],
  ]);
  expect([percent(0.9625), percent(1, 1), percent(null)]).toEqual(['96.25 %', '100.0 %', '–']);
  const noon = new Date(2026, 10, 22, 12, 38, 22);
  expect(localTime(noon.toISOString())).toBe('2026-11-22 12:38:22');
  expect(shortTime(noon.toISOString(), noon.getTime() + 1000)).toBe('12:38:22');
  expect(shortTime(noon.toISOString(), noon.getTime() + 86_400_000)).toBe('2026-11-22 12:38:22');
});

describe('weights', () => {
  const data = Buffer.from('the tensors, one behind the other');
  const header = Buffer.from('{"__metadata__":{}}');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const whole = Buffer.concat([length, header, data]);
  const sha256 = createHash('sha256').update(data).digest('hex');
  async function* inParts(bytes: number): AsyncGenerator<Uint8Array, void, void> {
    for (let at = 0; at < whole.length; at += bytes) yield whole.subarray(at, at + bytes);
  }

  it.each([1, 3, 8, 9, 30, 1000])('are the file that was sent in parts of %i bytes', async (bytes) => {
    const file = join(folder, `w${bytes}`);
    expect(await writeWeights(file, inParts(bytes), sha256, false)).toBe(whole.length);
    expect(readFileSync(file).equals(whole)).toBe(true);
  });

  it('that are others than the run has leave nothing behind, and no file is replaced unasked', async () => {
    await expect(writeWeights(join(folder, 'bad'), inParts(5), sha256.replace(/^./, 'x'), false)).rejects.toMatchObject({
      code: 'WEIGHTS_DIFFER',
    });
    expect(existsSync(join(folder, 'bad'))).toBe(false);
    writeFileSync(join(folder, 'mine'), 'mine');
    await expect(writeWeights(join(folder, 'mine'), inParts(5), sha256, false)).rejects.toMatchObject({ code: 'WEIGHTS_UNUSABLE_FILE' });
    await expect(writeWeights(join(folder, 'mine'), inParts(5), 'other', true)).rejects.toMatchObject({ code: 'WEIGHTS_DIFFER' });
    expect(readFileSync(join(folder, 'mine'), 'utf8')).toBe('mine');
    // Somebody else has made the file meanwhile.
    const meanwhile = async function* (): AsyncGenerator<Uint8Array> {
      yield* inParts(5);
      writeFileSync(join(folder, 'late'), 'theirs');
    };
    await expect(writeWeights(join(folder, 'late'), meanwhile(), sha256, false)).rejects.toMatchObject({ code: 'WEIGHTS_UNUSABLE_FILE' });
    expect(readFileSync(join(folder, 'late'), 'utf8')).toBe('theirs');
    await writeWeights(join(folder, 'mine'), inParts(5), sha256, true);
    expect(readFileSync(join(folder, 'mine')).equals(whole)).toBe(true);
    expect(readdirSync(folder).filter((name) => name.endsWith('.partial'))).toEqual([]);
  });
});
