import { expect, test } from 'vitest';
import { closest } from './closest.js';
import { MEASURED_NAMES } from './metric-names.js';
import { parseRunSpec } from './run-spec.js';

const said = (input: unknown): string[] => {
  const result = parseRunSpec(input);
  return result.ok ? [] : result.issues.map(({ path, message }) => `${path}: ${message}`);
};

test.each<[unknown, string[]]>([
  [
    { optimizer: { name: 'adamww', learningRate: -1 } },
    [
      'optimizer.name: must be one of sgd, momentum, adam, rmsprop, adamw, amsgrad, adamax, nadam, adagrad, adadelta, ftrl, lion, lamb, lars, not "adamww"; did you mean adamw?',
      'optimizer.learningRate: must be above 0, not -1',
    ],
  ],
  [
    { optimizer: { learningRate: 'fast' } },
    [
      'optimizer.name: is missing; must be one of sgd, momentum, adam, rmsprop, adamw, amsgrad, adamax, nadam, adagrad, adadelta, ftrl, lion, lamb, lars',
      'optimizer.learningRate: must be a number, not "fast"',
    ],
  ],
  [
    { optimizer: { name: 'adma', learnigRate: 1 } },
    [
      'optimizer.name: must be one of sgd, momentum, adam, rmsprop, adamw, amsgrad, adamax, nadam, adagrad, adadelta, ftrl, lion, lamb, lars, not "adma"; did you mean adam?',
      'optimizer.learnigRate: unknown field; did you mean learningRate?',
    ],
  ],
  [
    { optimizer: { name: 'sgd', momentum: 0.9 } },
    ['optimizer.momentum: unknown field of sgd; it belongs to momentum and rmsprop and lars'],
  ],
  [{ optimizer: 'adam' }, ['optimizer: must be an object with fields, not "adam"']],
  [{ nmae: 'x', epoch: 3 }, ['nmae: unknown field; did you mean name?', 'epoch: unknown field; did you mean length.epochs?']],
  [
    { servers: 2, gradients: { clip: 1 } },
    ['servers: unknown field; did you mean strategy.servers?', 'gradients: unknown field; did you mean gradient?'],
  ],
  [{ frobnicate: 1 }, ['frobnicate: unknown field']],
  [{ length: { epochs: 3, rounds: 2 } }, ['length: has epochs and rounds: give one of them']],
  [
    { features: { classWeights: { rare: 'much', kind: { rare: -1, often: { a: 1 } } } } },
    [
      'features.classWeights.rare: must be a number or a map, not "much"',
      'features.classWeights.kind.rare: must be at least 0, not -1',
      'features.classWeights.kind.often: must be a number',
    ],
  ],
  [{ length: {} }, ['length: must have epochs or rounds']],
  [{ length: { epoch: 3 } }, ['length.epoch: unknown field; did you mean epochs?']],
  [{ length: { epochs: 0 } }, ['length.epochs: must be at least 1, not 0']],
  [{ length: { rounds: 1.5 } }, ['length.rounds: must be a whole number, not 1.5']],
  [{ length: 5 }, ['length: must be an object with epochs or rounds, not 5']],
  [
    { model: 'mpl' },
    [
      'model: must be one of mlp, mlp-dropout, cnn, linear, lenet, resnet, mobilenet, lstm, gru, transformer, or an object with topology, not "mpl"; did you mean mlp?',
    ],
  ],
  [{ model: { topolgy: {} } }, ['model.topolgy: unknown field; did you mean topology?']],
  [{ model: { topology: 7 } }, ['model.topology: must be an object with class_name and config']],
  [{ engine: 'wsam' }, [expect.stringMatching(/^engine: must be one of wasm, .*, not "wsam"; did you mean wasm\?$/)]],
  [{ replicas: 2000, seed: null }, ['replicas: must be at most 1024, not 2000', 'seed: must be a number, not null']],
  [{ name: '' }, ['name: must not be empty, not ""']],
  [{ metrics: ['acuracy'] }, [`metrics.0: must be one of ${MEASURED_NAMES.join(', ')}, not "acuracy"; did you mean accuracy?`]],
  [
    { checkpoint: { keepLast: 'all' }, gradient: { clip: 1 } },
    ['gradient.clip: unknown field; did you mean clipNorm?', 'checkpoint.keepLast: must be a number, not "all"'],
  ],
  [
    { strategy: { kind: 'parameter-server', mode: 'synch' } },
    ['strategy.mode: must be one of sync, async, ssp, not "synch"; did you mean sync?'],
  ],
  [null, ['(spec): must be an object with fields, not null']],
  [[], ['(spec): must be an object with fields']],
])('%j', (input, messages) => expect(said(input)).toEqual(messages));

test('no text of the schema library reaches a person', () => {
  const odd: readonly unknown[] = [null, [], {}, 'x', -1, 1e999, Number.NaN, true, { name: 1 }, { kind: 'x' }, { constructor: 1 }];
  for (const field of [
    'name',
    'model',
    'dataset',
    'augmentation',
    'loss',
    'metrics',
    'optimizer',
    'replicas',
    'strategy',
    'gradient',
    'length',
    'checkpoint',
    'seed',
  ])
    for (const value of odd)
      for (const message of said({ [field]: value }))
        expect(message).not.toMatch(/Invalid|expected|Expected|Unrecognized|received|discriminator|Too /);
});

test.each<[string, string | undefined]>([
  ['adamw', 'adam'],
  ['ADAM', 'adam'],
  ['mometnum', 'momentum'],
  ['lion', undefined],
  ['x', undefined],
])('closest to %s is %s', (given, name) => expect(closest(given, ['sgd', 'momentum', 'adam'])).toBe(name));
