import { expect, it } from 'vitest';
import { lostText } from './lost-residuals.js';

it('says what is lost, of what, and why', () => {
  expect(lostText({ replicas: 1234, causes: ['moved', 'gap'] })).toBe('1,234 residuals of replicas (moved, gap)');
  expect(lostText({ replicas: 1, causes: ['checkpoint'] })).toBe('1 residual of a replica (checkpoint)');
});
