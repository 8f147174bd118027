import type { ControlPlane, PlacementJob, Report } from '@paceline/control-plane';
import { expect, test } from 'vitest';
import { virtualTime } from '../virtual-time.fixture.js';
import { reportFailed } from './server-context.js';

test('a failure that could not be reported is reported again, and then no more', async () => {
  const { clock, run } = virtualTime();
  const reports: Report[] = [];
  let refusals = 3;
  const sendReport = (report: Report): Promise<void> => {
    if (refusals-- > 0) return Promise.reject(new Error('Redis is away'));
    reports.push(report);
    return Promise.resolve();
  };
  const silent = () => undefined;
  const job = { runId: '00000000-0000-4000-8000-000000000001', attempt: 2, index: 1 } as PlacementJob;
  const context = { clock, serverId: 'ps-1', controlPlane: { sendReport } as unknown as ControlPlane };
  reportFailed(
    Object.assign(context, { log: { debug: silent, info: silent, warn: silent, error: silent } }),
    job,
    'CHECKPOINT_INVALID',
    'torn',
  );
  await run(5_000);
  expect(reports).toEqual([]);
  await run(60_000);
  expect(reports).toEqual([expect.objectContaining({ kind: 'server.failed', code: 'CHECKPOINT_INVALID', message: 'torn' })]);
});
