import { expect, it } from 'vitest';
import { lossesAlong } from './lost-residuals.js';

const lineage = [
  { attempt: 1, fromRound: 0, toRound: 100 },
  { attempt: 3, fromRound: 100, toRound: Infinity },
];
const told = (fromRound: number, replicas: number, cause = 'moved', attempt = 1) => ({ attempt, data: { cause, fromRound, replicas } });

it('takes the newest count of each cause, and the first round of all', () => {
  expect(lossesAlong(lineage, [told(15, 1, 'gap'), told(12, 2), told(12, 5)])).toEqual({
    fromRound: 12,
    replicas: 6,
    causes: ['gap', 'moved'],
  });
  expect(lossesAlong(lineage, [])).toBeNull();
});

it('goes on from what a coordinator has counted before another one took over, which begins at nothing', () => {
  expect(lossesAlong(lineage, [told(12, 5), told(40, 1)])).toEqual({ fromRound: 12, replicas: 6, causes: ['moved'] });
  expect(lossesAlong(lineage, [told(12, 5), told(40, 1), told(40, 2), told(60, 1)])).toMatchObject({ fromRound: 12, replicas: 8 });
  // The count of another coordinator has another first round, though it does not fall.
  expect(lossesAlong(lineage, [told(12, 2), told(40, 4)])).toMatchObject({ fromRound: 12, replicas: 6 });
});

it('leaves out what the lineage has left behind', () => {
  const undone = told(12, 7, 'moved', 2);
  expect(lossesAlong(lineage, [undone, told(100, 4, 'checkpoint', 1)])).toBeNull();
  expect(lossesAlong(lineage, [told(99, 1), undone, told(100, 4, 'checkpoint', 3)])).toEqual({
    fromRound: 99,
    replicas: 5,
    causes: ['moved', 'checkpoint'],
  });
});

it('leaves out data that a coordinator cannot mean, and keeps to what GraphQL can say', () => {
  const odd = [null, 'moved', [], {}, { cause: 'moved' }, { cause: 'theft', fromRound: 1, replicas: 1 }].map((data) => ({
    attempt: 1,
    data,
  }));
  const numbers = [told(-1, 1), told(1.5, 1), told(3, 0), told(2 ** 40, 1, 'moved', 3)];
  expect(lossesAlong(lineage, [...odd, ...numbers])).toBeNull();
  expect(lossesAlong(lineage, [...odd, told(12, 5), ...numbers])).toEqual({ fromRound: 12, replicas: 5, causes: ['moved'] });
  expect(lossesAlong(lineage, [told(12, 2 ** 40)])).toMatchObject({ replicas: 2 ** 31 - 1 });
});
