import { expect, it } from 'vitest';
import { answerRequest, REQUEST_TABLE, RUN_REQUESTS } from './requests.js';
import { hasLiveAttempt, isOver, mayMove, RUN_STATUSES } from './run-status.js';

it('every answer that moves a run is a move of the status table', () => {
  for (const request of RUN_REQUESTS)
    for (const status of RUN_STATUSES) {
      const answer = REQUEST_TABLE[request][status];
      if ((answer.does === 'move' || answer.does === 'ask') && answer.to)
        expect(mayMove(status, answer.to), `${request} ${status}`).toBe(true);
      if (answer.does === 'begin')
        expect([mayMove(status, 'QUEUED'), hasLiveAttempt(status)], `${request} ${status}`).toEqual([true, false]);
      if (isOver(status))
        expect(answer.does, `${request} ${status}`).toBe(request === 'extend' && status === 'SUCCEEDED' ? 'begin' : 'refuse');
    }
});

it('asking twice is the same as asking once', () => {
  expect(answerRequest('pause', 'PAUSING', false).does).toBe('nothing');
  expect(answerRequest('pause', 'PAUSED', false).does).toBe('nothing');
  expect(answerRequest('resume', 'QUEUED', false).does).toBe('nothing');
  expect(answerRequest('cancel', 'RUNNING', true).does).toBe('nothing');
});

it('a run that is being cancelled can be asked for nothing else', () => {
  for (const request of ['pause', 'resume', 'scale', 'extend'] as const)
    for (const status of RUN_STATUSES) expect(answerRequest(request, status, true).does, `${request} ${status}`).toBe('refuse');
});
