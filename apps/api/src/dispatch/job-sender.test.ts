import { expect, it } from 'vitest';
import { JobSender } from './job-sender.js';

const MiB = 1 << 20;

/** Which rows a batch takes of rows whose jobs have so many bytes. */
async function batchOf(jobBytes: readonly number[]): Promise<string[]> {
  const taken: string[] = [];
  const rows = jobBytes.map((bytes, i) => ({
    id: `${i}`,
    kind: 'step-task',
    jobId: `job-${i}`,
    runId: 'run',
    attempt: 1,
    payload: { stepTaskId: 'task' },
    run: { id: 'run', status: 'RUNNING', attempt: 1, jobBytes: bytes },
  }));
  const database = {
    outbox: {
      findFirst: async () => null,
      findMany: async () => rows,
      updateMany: async ({ where }: { where: { id: { in: string[] } } }) => void taken.push(...where.id.in),
      deleteMany: async () => undefined,
    },
    run: { findUnique: async () => null },
    stepTask: { findUnique: async () => null },
    runServer: { findMany: async () => [] },
  };
  const openWork = { hasUnsent: async () => true };
  const parts = [database, {}, {}, {}, openWork, {}] as unknown as ConstructorParameters<typeof JobSender>;
  await new JobSender(...parts).send(async () => undefined);
  return taken;
}

it('sends jobs of so many bytes at once, and one at least', async () => {
  expect(await batchOf([1000, 1000, 1000])).toEqual(['0', '1', '2']);
  expect(await batchOf([MiB, 2 * MiB, 2 * MiB, 10])).toEqual(['0', '1']);
  expect(await batchOf([9 * MiB, 10])).toEqual(['0']);
});
