import { describe, expect, it } from 'vitest';
import type { RunPhase, RunStatus } from '../graphql/generated/operations.js';
import { endText, epochText, hasSpeed, isStalled, reasonsOf, scoresOf, workersAtWork } from './run-state.js';

const progress = {
  phase: 'training' as RunPhase,
  round: 75,
  totalRounds: 1000,
  epoch: 0,
  totalEpochs: 5,
  loss: 0.106,
  accuracy: 0.9648,
  examplesPerSecond: 7431,
  etaSeconds: 156 as number | null,
  workers: 2,
  replicas: 4,
  waitingFor: null as string | null,
  validation: null,
};
const run = (status: RunStatus, changed: Partial<typeof progress> = {}) => ({ status, progress: { ...progress, ...changed } });
const plain = (text: string): string => text.replaceAll('\u202f', ' ');

describe('where a run is', () => {
  it('is not finished because its attempt has ended: a paused run says that it is paused, and has no speed', () => {
    const paused = run('PAUSED', { phase: 'finished', etaSeconds: null });
    expect([endText(paused), hasSpeed(paused)]).toEqual(['Paused', false]);
    const recovering = run('RECOVERING', { phase: 'failed' });
    expect([endText(recovering), hasSpeed(recovering)]).toEqual(['', false]);
    expect(plain(endText(run('RUNNING')))).toBe('about 2 min 36 s left');
    expect([
      endText(run('SUCCEEDED', { phase: 'finished' })),
      endText(run('PAUSING')),
      endText(run('RUNNING', { phase: 'evaluating' })),
    ]).toEqual(['', 'Pausing…', 'Evaluating…']);
  });
  it('has no time left, no speed and no worker while nobody computes', () => {
    const alone = run('RUNNING', { phase: 'waiting', waitingFor: 'a worker to take a step task' });
    expect([isStalled(alone), endText(alone), hasSpeed(alone), workersAtWork(alone)]).toEqual([true, 'Waiting', false, 0]);
    expect([isStalled(run('RUNNING')), workersAtWork(run('RUNNING'))]).toEqual([false, 2]);
  });
  it('gives one reason where the api and the coordinator say the same', () => {
    const waits = (statusReason: string | null) =>
      reasonsOf({ status: 'RUNNING', statusReason, progress: { waitingFor: 'a worker to take a step task' } });
    expect(waits('waits for a worker to take a step task')).toEqual(['Waits for a worker to take a step task']);
    expect(waits('waits for a worker: none is connected; start one')).toEqual(['Waits for a worker: none is connected; start one']);
    expect(waits('training began')).toEqual(['Training began', 'Waits for a worker to take a step task']);
    expect(reasonsOf({ status: 'FAILED', statusReason: null, progress: { waitingFor: 'a worker' } })).toEqual([]);
  });
});

describe('epochs', () => {
  it('are counted from one when the length is whole epochs', () => {
    const texts = [0, 199, 200, 1000].map((round) =>
      epochText({ round, epoch: Math.floor(round / 200), totalRounds: 1000, totalEpochs: 5 }),
    );
    expect(texts).toEqual(['Epoch 1 of 5', 'Epoch 1 of 5', 'Epoch 2 of 5', 'Epoch 5 of 5']);
    // Epochs of different lengths: the api knows.
    expect(epochText({ round: 200, epoch: 0, totalRounds: 240, totalEpochs: 5 })).toBe('Epoch 1 of 5');
  });
  it('are a share when the length is rounds', () => {
    const texts = [0, 75, 150].map((round) => epochText({ round, epoch: 0, totalRounds: 150, totalEpochs: 150 / 235 }));
    expect(texts).toEqual(['0 of 0.6 epochs', '0.3 of 0.6 epochs', '0.6 epochs']);
    expect(epochText({ round: 1000, epoch: 4, totalRounds: 1000, totalEpochs: 4.2553 })).toBe('4.3 epochs');
    expect(epochText({ round: 0, epoch: 0, totalRounds: 0, totalEpochs: 0 })).toBe('');
  });
});

describe('the figures of a run', () => {
  const result = { loss: 0.117, accuracy: 0.9628 };
  it('are those of the evaluation when there is one, and say so', () => {
    expect(scoresOf({ ...run('SUCCEEDED'), result })).toEqual({ loss: '0.117', accuracy: '96.28\u202f%', of: 'evaluation' });
    expect(scoresOf({ ...run('CANCELLED'), result: null })).toMatchObject({ loss: '0.106', of: 'training' });
    expect(scoresOf({ ...run('SUCCEEDED'), result: { loss: null, accuracy: null } }).of).toBe('training');
  });
  it('are those of the training while an extended run goes on', () => {
    expect(scoresOf({ ...run('RUNNING'), result }).of).toBe('training');
  });
});
