import { expect, test } from 'vitest';
import { residualLossSchema } from '@paceline/protocol';
import { LostResiduals } from './lost-residuals.js';

function watched(firstRound = 0, ofParameters = 0) {
  const told: { type: string; message: string; data: unknown }[] = [];
  const lost = new LostResiduals(firstRound, { append: (entry) => void (entry.kind === 'event' && told.push(entry)) }, ofParameters);
  return { lost, told, data: () => told.map(({ data }) => residualLossSchema.parse(data)) };
}

test('a replica that has moved is an event of the round that it spoils, once however often its worker says so', () => {
  const { lost, told, data } = watched();
  lost.committed(0, false);
  lost.heard(3, 'absent');
  lost.heard(3, 'absent');
  lost.heard(1, 'absent');
  lost.heard(2, undefined);
  lost.committed(1, false);
  lost.committed(2, false);
  expect(told).toHaveLength(1);
  expect(told[0]!.type).toBe('residual.lost');
  expect(told[0]!.message).toContain('of replicas 1 3 was lost in round 1');
  expect(data()).toEqual([{ cause: 'moved', fromRound: 1, replicas: 2 }]);
});

test('in the first round of an attempt the checkpoint lacks it; a worker that has missed a round has a gap', () => {
  const { lost, data } = watched(7);
  for (const replica of [0, 1]) lost.heard(replica, 'absent');
  lost.committed(7, false);
  lost.heard(0, 'absent');
  lost.heard(1, 'outdated');
  lost.committed(8, false);
  expect(data()).toEqual([
    { cause: 'checkpoint', fromRound: 7, replicas: 2 },
    { cause: 'moved', fromRound: 8, replicas: 1 },
    { cause: 'gap', fromRound: 8, replicas: 1 },
  ]);
});

test('with parameters as differences an attempt behind round 0 changes the bits of all replicas, whatever these keep themselves', () => {
  const { lost, told, data } = watched(7, 4);
  lost.heard(2, 'absent');
  for (const round of [7, 8, 9]) lost.committed(round, round === 9);
  expect(data()).toEqual([{ cause: 'checkpoint', fromRound: 7, replicas: 4 }]);
  expect(told[0]!.message).toContain('what workers had of the parameters');
  const first = watched(0, 4);
  first.lost.committed(0, true);
  expect(first.told).toEqual([]);
});

test('a loss that is heard when its round is committed already is of that round, once, and waits for no other round where none comes', () => {
  const { lost, data } = watched();
  lost.committed(0, false);
  lost.heard(2, 'absent');
  lost.committed(1, false);
  lost.heardLate(2, 'absent');
  lost.heardLate(3, 'absent');
  lost.heardLate(3, 'absent');
  lost.heardLate(1, undefined);
  expect(data()).toEqual([
    { cause: 'moved', fromRound: 1, replicas: 1 },
    { cause: 'moved', fromRound: 1, replicas: 2 },
  ]);
  lost.committed(2, true);
  lost.heardLate(0, 'absent');
  expect(data().at(-1)).toEqual({ cause: 'moved', fromRound: 1, replicas: 3 });
  const first = watched(4);
  first.lost.committed(4, false);
  first.lost.heardLate(0, 'absent');
  expect(first.data()).toEqual([{ cause: 'checkpoint', fromRound: 4, replicas: 1 }]);
});

test('losses without end are few events, and the last one has their number', () => {
  const { lost, data } = watched();
  for (let round = 1; round < 1000; round++) {
    lost.heard(0, 'absent');
    lost.committed(round, round === 999);
  }
  expect(data().map(({ replicas }) => replicas)).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 999]);
  expect(data().every(({ fromRound }) => fromRound === 1)).toBe(true);
});

test('a thousand replicas that are lost at once fit into an event', () => {
  const { lost, told } = watched();
  for (let replica = 0; replica < 1024; replica++) lost.heard(replica, 'absent');
  lost.committed(5, false);
  expect(told[0]!.message.length).toBeLessThan(500);
});
