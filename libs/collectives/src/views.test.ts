/** Who goes on when members are lost: never two views side by side, and all agree on which operation is done. */
import { describe, expect, it } from 'vitest';
import { nextIn, nextView, reportIn, type Report, type View } from './views.js';

const FIRST: View = { number: 0, members: [0, 1, 2, 3, 4] };

/** Members that are all connected to each other. */
function reports(members: readonly number[], of: Partial<Record<number, Partial<Report>>> = {}, common: Partial<Report> = {}) {
  return new Map(
    members.map((member): [number, Report] => [
      member,
      {
        confirmed: FIRST,
        accepted: [],
        completed: 7,
        here: members.filter((other) => other !== member),
        dead: [],
        ...common,
        ...of[member],
      },
    ]),
  );
}

describe('the next view', () => {
  it('has those that are left, and names who has completed most', () => {
    const next = nextView(reports([1, 2, 4], { 2: { completed: 8 }, 4: { completed: 8 } }));
    expect(next).toEqual({ number: 1, members: [1, 2, 4], completed: 8, behind: [1], source: 2 });
  });

  it('needs more than half, or half with the lowest', () => {
    const four = { confirmed: { number: 3, members: [0, 1, 2, 3] } };
    expect(nextView(reports([3, 4]))).toContain('2 of 5 processes');
    expect(nextView(reports([0, 3], {}, four))).toMatchObject({ number: 4, members: [0, 3] });
    expect(nextView(reports([1, 2], {}, four))).toContain('half without the first');
  });

  it('is that of those that are left when all others have ended', () => {
    expect(nextView(reports([3, 4], { 3: { dead: [0, 1] }, 4: { dead: [2] } }))).toMatchObject({ members: [3, 4] });
    const two = { confirmed: { number: 0, members: [0, 1] } };
    expect(nextView(reports([1], { 1: { dead: [0] } }, two))).toMatchObject({ members: [1] });
    expect(nextView(reports([1], {}, two))).toContain('1 of 2');
    expect(nextView(reports([2, 3, 4], { 2: { dead: [3] } }))).toMatchObject({ members: [2, 3, 4] });
  });

  it('counts who has ended as long as somebody else may live, with whom it may have gone on', () => {
    expect(nextView(reports([3, 4], { 3: { dead: [0, 1] } }))).toContain('2 of 5 processes');
    expect(nextView(reports([0], { 0: { dead: [2] } }, { confirmed: { number: 0, members: [0, 1, 2] } }))).toContain('1 of 3');
    // Who is here and is left out lives.
    const cut = { 1: { here: [2] }, 2: { here: [1], dead: [3] } };
    expect(nextView(reports([0, 1, 2], { ...cut, 0: { here: [] } }, { confirmed: { number: 0, members: [0, 1, 2, 3] } }))).toContain(
      '1 of 4',
    );
  });

  it('has a quorum of each view that somebody has accepted since the last that is confirmed', () => {
    const accepted = [{ number: 1, members: [0, 1, 2] }];
    expect(nextView(reports([2, 3, 4], { 2: { accepted } }))).toContain('1 of 3');
    expect(nextView(reports([1, 2, 3], { 2: { accepted } }))).toMatchObject({ number: 2, members: [1, 2, 3] });
    const confirmed = { number: 1, members: [0, 1, 2] };
    // Two of the three that one of them has confirmed: they go on, without the one that is no member of it.
    expect(nextView(reports([0, 1, 3], { 0: { confirmed }, 1: { accepted } }))).toMatchObject({ number: 2, members: [0, 1] });
  });

  it('leaves out who does not reach all', () => {
    const cut = { 0: { here: [1, 2] }, 3: { here: [1, 2] } };
    expect(nextView(reports([0, 1, 2, 3], cut))).toMatchObject({ members: [0, 1, 2] });
  });

  const goesOn = (members: readonly number[], common: Partial<Report>): boolean =>
    members.length > 0 && typeof nextView(reports(members, {}, common)) !== 'string';
  const inMask = (mask: number): number[] => FIRST.members.filter((member) => (mask >> member) & 1);

  it('never lets two parts of a cut network go on, whatever the cut and whoever has ended', () => {
    for (let cut = 0; cut < 32; cut++)
      for (let ended = 0; ended < 31; ended++) {
        const dead = inMask(ended);
        const parts = [inMask(cut & ~ended), inMask(~cut & ~ended)];
        const expected = dead.length === 0 || parts.some((part) => part.length === 0) ? [1] : [0, 1];
        expect(expected, JSON.stringify({ parts, dead })).toContain(parts.filter((part) => goesOn(part, { dead })).length);
      }
  });

  it('nor where one part has gone on, and some of it have ended before the network is whole', () => {
    for (let cut = 0; cut < 32; cut++)
      for (let ended = 0; ended < 31; ended++) {
        const [part, dead] = [inMask(cut), inMask(ended)];
        if (!goesOn(part, {})) continue;
        const [one, other] = [inMask(cut & ~ended), inMask(~cut & ~ended)];
        const both = goesOn(one, { dead, confirmed: { number: 1, members: part } }) && goesOn(other, { dead });
        expect(both, JSON.stringify({ part, one, other, dead })).toBe(false);
      }
  });
});

it('what a member says of its view is checked', () => {
  const text = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');
  const [report] = [...reports([1, 2]).values()];
  expect(reportIn(text(report))).toEqual(report);
  for (const wrong of [null, {}, { ...report, completed: -1 }, { ...report, here: ['1'] }, { ...report, accepted: [{}] }])
    expect(() => reportIn(text(wrong))).toThrow('BAD_MESSAGE');
  expect(nextIn(text({ none: 'too few' }))).toBe('too few');
  expect(() => nextIn(text({ number: 1, members: [0] }))).toThrow('BAD_MESSAGE');
  expect(() => nextIn('e30')).toThrow('BAD_MESSAGE');
});
