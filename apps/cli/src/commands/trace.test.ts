import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PacelineApiError, type PacelineClient, type RunTrace } from '@paceline/client';
import { Command } from 'commander';
import { afterAll, expect, it } from 'vitest';
import { createTerminal, type Stream } from '../terminal/terminal.js';
import type { CommandContext } from '../command.js';
import { addTrace } from './trace.js';

const folder = mkdtempSync(join(tmpdir(), 'paceline-trace-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const ID = '01990000-0000-7000-8000-0000deadbeef';

const span = (name: string, dur: number, ph: 'X' | 'M' = 'X') => ({ name, ph, ts: 0, dur, pid: 1, tid: 1, args: {} });
const TRACE: RunTrace = {
  // Two rounds: `step` has `compute` in it, and `round N` all of them, so neither is added up.
  traceEvents: [
    span('thread_name', 0, 'M'),
    span('round 7', 9_000),
    span('step', 8_000),
    span('compute', 3_000),
    span('compute', 4_000),
    span('send', 500),
    span('receive', 10_000),
  ],
  otherData: { runId: ID, fromRound: 7, toRound: 8, processes: 3, leftOut: 0, isWhole: true },
};

interface Said {
  readonly exit: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly asked: readonly unknown[];
}

/** Types the command line, with a client that answers with this trace, or fails. */
async function said(line: readonly string[], answer: RunTrace | Error = TRACE, json = false): Promise<Said> {
  const texts = { stdout: '', stderr: '' };
  const streamOf = (name: 'stdout' | 'stderr'): Stream => ({
    isTTY: false,
    columns: () => 120,
    write: (more) => void (texts[name] += more),
  });
  const terminal = createTerminal({ json, debug: false }, {}, streamOf('stdout'), streamOf('stderr'));
  const asked: unknown[] = [];
  const client = {
    runsMeant: async (reference: string) => (reference === '@last' ? [{ id: ID }] : []),
    traceRun: async (...args: unknown[]) => {
      asked.push(args);
      if (answer instanceof Error) throw answer;
      return answer;
    },
  };
  const context = { terminal, connect: () => client as unknown as PacelineClient } as CommandContext;
  let exit = Number.NaN;
  const program = new Command().exitOverride();
  addTrace(program, (action) => async (...args) => {
    exit = await action(context, args.at(-1) as Command, ...(args.slice(0, -2) as never[]));
  });
  await program.parseAsync(['node', 'paceline', 'trace', ...line]);
  return { exit, ...texts, asked };
}

it('writes the trace, and says how many ms of a round each kind of span takes, without those that have others in them', async () => {
  const file = join(folder, 'rounds.json');
  const { exit, stdout, stderr, asked } = await said(['@last', '--rounds', '2', '--out', file]);
  expect(exit).toBe(0);
  expect(asked).toEqual([[ID, { rounds: 2 }]]);
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(TRACE);
  const rows = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s{2,}/u));
  expect(rows).toEqual([
    ['WHAT', 'MS A ROUND', 'SPANS'],
    ['receive', '5.00', '1'],
    ['compute', '3.50', '2'],
    ['send', '0.25', '1'],
  ]);
  expect(stderr).toBe(`Rounds 7 to 8 of 3 processes are in ${file}; open it in https://ui.perfetto.dev\n`);
});

it('asks for three rounds of its own accord, and has one JSON document with --json', async () => {
  const file = join(folder, 'document.json');
  const { stdout, asked } = await said(['@last', '--out', file], TRACE, true);
  expect(asked).toEqual([[ID, { rounds: 3 }]]);
  const spans = { compute: { count: 2, ms: 7 }, send: { count: 1, ms: 0.5 }, receive: { count: 1, ms: 10 } };
  expect(JSON.parse(stdout)).toEqual({ file, fromRound: 7, toRound: 8, processes: 3, leftOut: 0, isWhole: true, spans });
});

it('says what is not in it', async () => {
  const partial = { ...TRACE, otherData: { ...TRACE.otherData, leftOut: 2, isWhole: false } };
  const { stderr } = await said(['@last', '--rounds', '5', '--out', join(folder, 'partial.json')], partial);
  expect(stderr).toContain('Only 2 rounds were seen whole by all processes.');
  expect(stderr).toContain('2 more processes found no room: ask for fewer rounds.');
  expect(stderr).toContain('Some spans found no room: ask for fewer rounds.');
});

it('records nothing where there is nothing to write to, and leaves no file where nothing was recorded', async () => {
  const [taken, fresh] = [join(folder, 'taken.json'), join(folder, 'fresh.json')];
  writeFileSync(taken, 'mine');
  await expect(said(['@last', '--out', taken])).rejects.toMatchObject({ code: 'OUTPUT_UNUSABLE' });
  expect(readFileSync(taken, 'utf8')).toBe('mine');
  expect((await said(['@last', '--out', taken, '--force'])).exit).toBe(0);
  expect(JSON.parse(readFileSync(taken, 'utf8'))).toEqual(TRACE);
  await expect(said(['@last', '--out', fresh], new PacelineApiError('CONFLICT', 'the run waits'))).rejects.toMatchObject({
    code: 'CONFLICT',
  });
  expect(existsSync(fresh)).toBe(false);
  await expect(said(['none', '--out', fresh])).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(said(['@last', '--rounds', '51', '--out', fresh])).rejects.toMatchObject({ code: 'FLAG_INVALID' });
  expect(existsSync(fresh)).toBe(false);
});
