import { expect, it } from 'vitest';
import type { RunDetails } from './run-details.js';
import { resumeCommand } from './resume-command.js';

it('says how to go on from the newest usable checkpoint of a run that has ended without a result', () => {
  const ended = (status: RunDetails['status'], round: number) => ({
    id: '0198',
    status,
    progress: { totalRounds: 100 },
    checkpoints: [
      { round: 90, state: 'VOID' as const },
      { round, state: 'USABLE' as const },
      { round: 5, state: 'USABLE' as const },
    ],
  });
  const found = { command: 'npx paceline train --resume-from 0198', round: 50 };
  expect([resumeCommand(ended('FAILED', 50)), resumeCommand(ended('CANCELLED', 50))]).toEqual([found, found]);
  expect([ended('SUCCEEDED', 50), ended('PAUSED', 50), ended('FAILED', 0), ended('FAILED', 100)].map(resumeCommand)).toEqual(
    Array(4).fill(undefined),
  );
  expect(resumeCommand({ ...ended('FAILED', 50), checkpoints: [] })).toBeUndefined();
});
