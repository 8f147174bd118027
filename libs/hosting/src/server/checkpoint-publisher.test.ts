import { Journal } from '@paceline/exchange';
import type { PlacementJob } from '@paceline/control-plane';
import type { CheckpointId, Checkpoints, RetentionPolicy } from '@paceline/storage';
import { expect, test } from 'vitest';
import { CheckpointPublisher } from './checkpoint-publisher.js';

/** A store in which a sweep would like to remove everything but the newest. */
function publishing(pins?: string) {
  const present: CheckpointId[] = [];
  const pinned: RetentionPolicy['keep'][] = [];
  const sweep: Checkpoints['sweep'] = (_, { keep }, mayRemove) => {
    pinned.push(keep);
    const gone = present.slice(0, -1).filter((id) => mayRemove!(id));
    present.splice(0, Infinity, ...present.filter((id) => !gone.includes(id)));
    return Promise.resolve(gone);
  };
  const journal = new Journal({ now: () => 0 });
  const publisher = new CheckpointPublisher({
    checkpoints: { sweep } as Checkpoints,
    job: { runId: 'run', attempt: 2, pins, spec: { checkpoint: { keepLast: 1, keepBest: false } } } as unknown as PlacementJob,
    layout: undefined as never,
    schedule: undefined as never,
    parent: { runId: 'run', attempt: 1, round: 5, lineage: [] } as never,
    journal,
    nowMs: () => 0,
  });
  const write = (round: number, attempt = 2) => present.push({ runId: 'run', attempt, round });
  const tell = (round: number): void => {
    write(round);
    journal.append({ kind: 'event', type: 'checkpoint.written', message: '', data: { attempt: 2, round } });
    publisher.told(round);
  };
  const swept = async (): Promise<number[]> => {
    await publisher.sweep();
    return present.map(({ round }) => round);
  };
  return { journal, publisher, pinned, write, tell, swept };
}

test('what others need is known from the first sweep on, before the control hash says it', async () => {
  const { publisher, pinned, swept } = publishing('1:40,1:7');
  await swept();
  expect(pinned[0]).toEqual(
    expect.arrayContaining([
      { attempt: 1, round: 40 },
      { attempt: 1, round: 7 },
    ]),
  );
  publisher.pins = [];
  await swept();
  expect(pinned[1]).not.toContainEqual({ attempt: 1, round: 40 });
});

test('what the coordinator before has told is kept until something of its successor is known', async () => {
  const { journal, publisher, write, tell, swept } = publishing();
  write(10);
  publisher.told(10, 0);
  tell(30);
  expect(await swept()).toEqual([10, 30]);
  journal.batch();
  journal.acknowledge(1);
  expect(await swept()).toEqual([30]);
});

test('whatever of a checkpoint may be stored without its acknowledgement having come, the newest stored one is there', async () => {
  const { journal, tell, swept } = publishing();
  tell(10);
  journal.batch();
  journal.acknowledge(1);
  tell(20);
  journal.batch(); // stored, perhaps
  tell(30);
  expect(await swept()).toEqual([10, 20, 30]);
  journal.acknowledge(2);
  expect(await swept()).toEqual([20, 30]);
});

test('what the control plane has dropped, since the attempt is over for it, is nothing that it knows', async () => {
  const { journal, tell, swept } = publishing();
  tell(10);
  journal.batch();
  journal.acknowledge(1);
  tell(20);
  tell(30);
  journal.batch();
  journal.acknowledge(3, false);
  expect([journal.pending, await swept()]).toEqual([0, [10, 20, 30]]);
});

test('a checkpoint that goes before anybody was told of it is never told of', async () => {
  const { journal, tell, swept } = publishing();
  tell(10);
  journal.batch();
  journal.acknowledge(1);
  for (const round of [20, 30, 40]) tell(round);
  expect(await swept()).toEqual([10, 40]);
  expect(journal.batch()).toMatchObject([{ sequence: 4, data: { round: 40 } }]);
  journal.acknowledge(4);
  expect(await swept()).toEqual([40]);
});

test('the checkpoint that the attempt began with stays until one of its own is known', async () => {
  const { journal, pinned, tell, swept } = publishing();
  tell(10);
  await swept();
  journal.batch();
  journal.acknowledge(1);
  await swept();
  expect(pinned).toEqual([[{ attempt: 1, round: 5 }], []]);
});

test('what others need stays', async () => {
  const { publisher, pinned, tell, swept } = publishing();
  tell(10);
  publisher.pins = [{ attempt: 2, round: 10 }];
  await swept();
  expect(pinned[0]).toContainEqual({ attempt: 2, round: 10 });
});

test('a coordinator that has not heard of its successor leaves what that one has written', async () => {
  const { journal, write, tell, swept } = publishing();
  tell(10);
  journal.batch();
  journal.acknowledge(1);
  for (const round of [20, 30]) write(round);
  expect(await swept()).toEqual([10, 20, 30]);
});
