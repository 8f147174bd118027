import { expect, test } from 'vitest';
import { optimizerOfKeras } from './keras-optimizer.js';
import { parseRunSpec } from './run-spec.js';

test('what Keras writes down is taken, and what it leaves out is filled in as Keras does', () => {
  const config = { name: 'sgd_6', weight_decay: null, clipnorm: null, use_ema: false, ema_momentum: 0.99, loss_scale_factor: null };
  expect(optimizerOfKeras({ class: 'SGD', config })).toEqual({ ok: true, optimizer: { name: 'sgd', learningRate: 0.01 }, gradient: {} });
  expect(optimizerOfKeras({ class: 'SGD', config: { momentum: 0.9, global_clipnorm: 2 } })).toEqual({
    ok: true,
    optimizer: { name: 'momentum', learningRate: 0.01, momentum: 0.9, nesterov: false },
    gradient: { clipGlobalNorm: 2 },
  });
  expect(optimizerOfKeras({ class: 'AdamW', config: { use_ema: true, ema_overwrite_frequency: 5 } })).toMatchObject({
    ok: true,
    optimizer: { name: 'adamw', weightDecay: 0.004, emaMomentum: 0.99, emaOverwriteRounds: 5 },
  });
});

test.each([
  ['Muon', {}, 'class', /"Muon" is not among SGD, Adam/],
  ['constructor', {}, 'class', /is not among/],
  ['SGD', { learning_rate: { class_name: 'CosineDecay' } }, 'learning_rate', /schedules are not replayed/],
  ['SGD', { momentum: 'much' }, 'momentum', /"much" is not a number/],
  ['SGD', { momentum: 2 }, 'optimizer.momentum', /1/],
  ['SGD', { gradient_accumulation_steps: 4 }, 'gradient_accumulation_steps', /larger global batch/],
  ['SGD', { clipnorm: 1, clipvalue: 1 }, 'clipvalue', /together with clipnorm/],
  ['SGD', { sparkle: 1 }, 'sparkle', /no field of SGD/],
  ['Ftrl', { learning_rate_power: -0.7 }, 'learning_rate_power', /only -0.5/],
  ['Ftrl', { weight_decay: 0.1 }, 'weight_decay', /no weight decay/],
])('%s %j is refused by its field', (name, config, path, message) => {
  const result = optimizerOfKeras({ class: name, config });
  expect(result).toMatchObject({ ok: false, issues: [{ path, message: expect.stringMatching(message) }] });
});

test.each([
  [{ optimizer: { name: 'lamb' }, strategy: { kind: 'parameter-server', mode: 'async' } }, 'optimizer.name', /lamb needs mode sync/],
  [{ optimizer: { name: 'lars' }, gradient: { clipGlobalNorm: 1 } }, 'gradient.clipGlobalNorm', /does not go with lars/],
  [
    { optimizer: { name: 'lars' }, strategy: { kind: 'parameter-server', backupReplicas: 1 } },
    'strategy.backupReplicas',
    /does not go with/,
  ],
  [{ optimizer: { name: 'adam', emaOverwriteRounds: 3 } }, 'optimizer.emaOverwriteRounds', /without emaMomentum/],
  [{ optimizer: { name: 'sgd', emaMomentum: 0.9 }, strategy: { kind: 'parameter-server', mode: 'ssp' } }, 'optimizer.emaMomentum', /sync/],
  [
    { optimizer: { name: 'sgd', emaMomentum: 0.9 }, earlyStopping: { patience: 2 } },
    'optimizer.emaMomentum',
    /does not go with earlyStopping/,
  ],
  [{ strategy: { kind: 'parameter-server', startWorkers: 5 } }, 'strategy.startWorkers', /must not exceed replicas \(4\)/],
])('%j is refused at %s', (input, path, message) => {
  expect(parseRunSpec(input)).toMatchObject({ ok: false, issues: [{ path, message: expect.stringMatching(message) }] });
});
