/** What is told to a process that comes again, in blocks, with bounds. */
import { describe, expect, it } from 'vitest';
import { Journal } from './journal.js';

const line = (i: number): string => JSON.stringify([`step ${i}`]);
const lines = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, i) => line(from + i));

describe('the journal', () => {
  it('tells all lines from any one on, whether their block is full or not', () => {
    const journal = new Journal({ blockCharacters: 100, mostBytes: 1 << 20 });
    for (let i = 0; i < 50; i++) journal.add(line(i));
    expect(journal.length).toBe(50);
    for (let from = 0; from <= 50; from++) expect(journal.told(from)).toEqual({ lines: lines(from, 50), closed: undefined });
  });

  it('tells so many lines as fit into an answer', () => {
    const journal = new Journal();
    const long = 'x'.repeat(100_000);
    for (let i = 0; i < 10; i++) journal.add(JSON.stringify([long]));
    expect(journal.told(0).lines).toHaveLength(3);
    expect(journal.rest(0).lines).toHaveLength(10);
  });

  it('tells an evaluation in hand to who is let in alone, with what replicas answered; later without', () => {
    const journal = new Journal();
    journal.add(line(0));
    journal.add(line(1), [Float32Array.of(1, 2)]);
    journal.add(line(2), [Float32Array.of(3)]);
    expect(journal.told(0).lines).toEqual(lines(0, 1));
    const told = journal.rest(1).lines.map((each) => JSON.parse(each) as unknown[]);
    expect(told).toEqual([
      ['step 1', null, [Buffer.from(Float32Array.of(1, 2).buffer).toString('base64')]],
      ['step 2', null, [Buffer.from(Float32Array.of(3).buffer).toString('base64')]],
    ]);
    journal.settled();
    journal.add(line(3));
    expect(journal.told(0).lines).toEqual(lines(0, 4));
  });

  it('keeps answers up to a bound: nobody can come before the evaluation is over', () => {
    const journal = new Journal({ blockCharacters: 1000, mostBytes: 100 });
    journal.add(line(0), [new Float32Array(20)]);
    expect(journal.hasAll).toBe(true);
    journal.add(line(1), [new Float32Array(20)]);
    expect(journal.hasAll).toBe(false);
    expect(journal.told(0).lines).toEqual([]);
    journal.settled();
    expect([journal.hasAll, journal.told(0).lines.length]).toEqual([true, 2]);
  });

  it('says why nobody can come any more, beyond its bound too', () => {
    const journal = new Journal({ blockCharacters: 100, mostBytes: 200 });
    for (let i = 0; i < 200; i++) journal.add(line(i));
    expect(journal.told(0)).toEqual({ lines: [], closed: 'what the processes have done so far takes more than 200 bytes to tell' });
    const other = new Journal();
    other.close('functions ran in replicas');
    other.add(line(0));
    expect(other.rest(0)).toEqual({ lines: [], closed: 'functions ran in replicas' });
  });
});
