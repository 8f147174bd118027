import type { PlacementJob } from '@paceline/jobs';
import type { Checkpoints } from '@paceline/storage';
import { expect, test } from 'vitest';
import { CheckpointPublisher } from './checkpoint-publisher.js';

test('what the coordinator before has told is kept until something of its successor is known', async () => {
  const kept: unknown[] = [];
  const publisher = new CheckpointPublisher({
    checkpoints: { sweep: (_: string, { keep }: { keep: unknown }) => Promise.resolve(kept.push(keep)) } as unknown as Checkpoints,
    job: { runId: 'run', attempt: 2, spec: { checkpoint: { keepLast: 1, keepBest: false } } } as unknown as PlacementJob,
    layout: undefined as never,
    schedule: undefined as never,
    parent: undefined,
    nowMs: () => 0,
  });
  publisher.told(10, 0);
  publisher.told(30, 7);
  await publisher.sweep(6);
  await publisher.sweep(7);
  expect(kept).toEqual([[{ attempt: 2, round: 10 }], [{ attempt: 2, round: 30 }]]);
});
