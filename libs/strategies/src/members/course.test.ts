/** A process that was started again goes through what the others did, and takes part where they are. */
import { describe, expect, it } from 'vitest';
import type { NextView } from '@paceline/collectives';
import { MemberError } from '../errors.js';
import { MemberCourse, type CourseGroup } from './course.js';
import { MembersChanged, NotLetIn } from './changed.js';

const VIEW: NextView = { number: 2, members: [0, 1], completed: 9, behind: [], source: 0, entrant: { member: 1, known: 0 } };
const pool = {
  fail: (error: Error): never => {
    throw error;
  },
};
const base64 = (values: Uint8Array): string => Buffer.from(values).toString('base64');

/** @param answers one after the other: lines, and where they are the last ones the view */
function begun(answers: readonly (readonly string[] | NotLetIn | { readonly last: readonly string[] })[], isNew = true) {
  const noted: string[] = [];
  const asked: string[] = [];
  const left = [...answers];
  const next = (what: string, known: number) => {
    asked.push(`${what} ${known}`);
    const answer = left.shift()!;
    if (answer instanceof NotLetIn) throw answer;
    if ('last' in answer) return { lines: answer.last, closed: undefined, view: VIEW };
    return { lines: answer, closed: undefined, view: undefined };
  };
  const group: CourseGroup = {
    ownTask: { type: 'worker', index: 1 },
    isNew: () => isNew,
    note: (line) => void noted.push(line),
    closeJournal: (why) => void noted.push(`closed: ${why}`),
    more: (_, known) => next('more', known),
    enter: (_, known) => next('enter', known),
  };
  const laidOut: number[] = [];
  const course = new MemberCourse(pool, group, ({ number }) => laidOut.push(number));
  const does = (what: string): string => course.operation(what, () => 'done', () => 'not done'); // prettier-ignore
  return { course, does, noted, asked, laidOut };
}

const lines = (...names: string[]): string[] => names.map((name) => JSON.stringify([name]));

describe('a process that was started again', () => {
  it('does not do what the others did, asks for more, is let in, and does the next operation with them', () => {
    const { course, does, noted, asked, laidOut } = begun([lines('a', 'b'), { last: lines('c') }]);
    expect([does('a'), does('b'), course.isCatchingUp, does('c'), does('d')]).toEqual(['not done', 'not done', true, 'not done', 'done']);
    expect([asked, laidOut, course.isCatchingUp]).toEqual([['more 0', 'enter 2'], [2], false]);
    expect(noted, 'it could tell all of it itself').toEqual(lines('a', 'b', 'c', 'd'));
  });

  it('asks for more before it asks to be let in, as long as there is much', () => {
    const many = Array.from({ length: 300 }, (_, i) => `s${i}`);
    const { does, asked } = begun([lines(...many), lines('x'), { last: [] }]);
    for (const each of [...many, 'x']) expect(does(each)).toBe('not done');
    expect(does('y')).toBe('done');
    expect(asked).toEqual(['more 0', 'more 300', 'enter 301']);
  });

  it('comes to the values of the others, and computes its own afterwards', () => {
    const { course, does } = begun([[...lines('a'), JSON.stringify(['loss', base64(Uint8Array.of(7))])], { last: [] }]);
    does('a');
    expect([...course.value('loss', () => Uint8Array.of(1))]).toEqual([7]);
    does('b');
    expect([...course.value('loss', () => Uint8Array.of(1))]).toEqual([1]);
  });

  it('has what replicas answered in an evaluation in hand', () => {
    const answered = [base64(new Uint8Array(Float32Array.of(3, 4).buffer))];
    const { course } = begun([[JSON.stringify(['p', null, answered])], { last: [] }]);
    expect(course.operation('p', () => [], ({ outputs }) => outputs!.map((values) => [...values]))).toEqual([[3, 4]]); // prettier-ignore
  });

  it('asks again when it was not let in, from what it knows', () => {
    const { does, asked, laidOut } = begun([lines('a'), new NotLetIn('worker 0 was lost'), lines('b'), { last: lines('c') }]);
    expect(['a', 'b', 'c', 'd'].map(does)).toEqual(['not done', 'not done', 'not done', 'done']);
    expect([asked, laidOut]).toEqual([['more 0', 'enter 1', 'more 1', 'enter 2'], [2]]);
  });

  it('does not ask for ever: each time costs the others the operation in hand', () => {
    const { does, asked } = begun([lines('a'), ...Array.from({ length: 20 }, () => new NotLetIn('worker 0 was lost'))]);
    does('a');
    expect(() => does('b')).toThrow(
      'worker 1 cannot take part again: 5 times the others went on without it before it had their state: worker 0 was lost',
    );
    expect(asked.filter((each) => each.startsWith('more'))).toHaveLength(5);
  });

  it('ends where it does something else, and says what', () => {
    const { course } = begun([lines('fit, epochs 2')]);
    const other = (): void => course.same('fit, epochs 3');
    expect(other).toThrow(MemberError);
    const { course: again } = begun([lines('fit, epochs 2')]);
    expect(() => again.same('fit, epochs 3')).toThrow(
      'worker 1 cannot take part again: it is at "fit, epochs 3", and the others were at "fit, epochs 2": start it with the same program, data and arguments. The others train on',
    );
  });

  it('reads no weights of a moment at which it was not there, and runs no function again', () => {
    const { course } = begun([lines('a')]);
    expect(() => course.refuseReading('a weight')).toThrow('no weights of earlier steps. Ask strategy.isCatchingUp in a callback');
    expect(() => course.close('a function that ran in replicas')).toThrow('a function that ran in replicas cannot be done again');
  });
});

describe('a process that was there from the beginning', () => {
  it('writes down what is done, once, also where others have completed it', () => {
    const { course, does, noted } = begun([], false);
    does('a');
    const lost = (): void => void course.operation('b', () => { throw new MembersChanged('somebody was lost'); }, () => undefined); // prettier-ignore
    expect(lost).toThrow(MembersChanged);
    does('b');
    expect(lost).toThrow(MembersChanged);
    course.counts();
    course.counts();
    course.close('functions ran in replicas');
    expect(noted).toEqual([...lines('a', 'b', 'b'), 'closed: functions ran in replicas']);
  });
});
