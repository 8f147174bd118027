/** Which devices a strategy has, by its options and by what is here. */
import { describe, expect, it } from 'vitest';
import { ArgumentError, EngineError } from '../errors.js';
import type { MirroredOptions } from '../strategy-options.js';
import { chosenDevices, type DevicesHere } from './device-names.js';

const engineOf = (variant: 'cpu' | 'cuda') =>
  ({ source: 'installed', packageDir: `/engines/${variant}`, name: variant, variant, isCurrent: true }) as const;
const here = (gpus: readonly string[], ...variants: readonly ('cpu' | 'cuda')[]): DevicesHere => ({
  gpus: () => gpus,
  tensorflow: () => variants.map(engineOf),
  cores: 3,
});
const NOTHING = here([]);
const ofProject: DevicesHere = { ...here(['0']), tensorflow: () => [{ ...engineOf('cuda'), source: 'project' }] };
const TWO_GPUS = here(['3', '5'], 'cuda', 'cpu');

const chosen = (options: object, at: DevicesHere) =>
  chosenDevices('MirroredStrategy', options as MirroredOptions, at)?.map(({ name, engine, visible }) =>
    [name, engine.backend, engine.tensorflowPackage ?? '', visible].join(' ').trim(),
  );

describe('without devices', () => {
  it.each([
    ['nothing else is here', {}, NOTHING],
    ['TensorFlow is here and no GPU', {}, here([], 'cpu')],
    ['GPUs are here and TensorFlow cannot use them', { engine: 'auto' }, here(['0'], 'cpu')],
    ['TensorFlow is that of the project, whose own program may hold the memory of the GPUs', {}, ofProject],
    ['wasm is asked for', { engine: 'wasm' }, TWO_GPUS],
    ['threads are asked for', { threads: 2 }, TWO_GPUS],
  ])('replicas are threads where %s', (_, options, at) => expect(chosen(options, at)).toBeUndefined());

  it('there is a process for each GPU that TensorFlow can use, with the names of CUDA_VISIBLE_DEVICES', () => {
    const expected = ['gpu:0 tensorflow /engines/cuda 3', 'gpu:1 tensorflow /engines/cuda 5'];
    for (const options of [{}, { engine: 'tensorflow' }, { replicas: 4 }]) expect(chosen(options, TWO_GPUS)).toEqual(expected);
  });

  it('GPUs are used with the TensorFlow of the project where TensorFlow or a GPU is asked for', () => {
    for (const options of [{ engine: 'tensorflow' }, { devices: ['gpu:0'] }])
      expect(chosen(options, ofProject)).toEqual(['gpu:0 tensorflow /engines/cuda 0']);
  });

  it('the engine tensorflow has a process for each core where there is no GPU', () =>
    expect(chosen({ engine: 'tensorflow' }, here([], 'cpu'))).toEqual([0, 1, 2].map((i) => `cpu:${i} tensorflow /engines/cpu`)));
});

it('there are no more devices than replicas', () => {
  expect(chosen({ replicas: 1 }, TWO_GPUS)).toEqual(['gpu:0 tensorflow /engines/cuda 3']);
  expect(chosen({ replicas: 2, engine: 'tensorflow' }, here([], 'cpu'))!.length).toBe(2);
});

describe('devices that are named', () => {
  it.each([
    [{ devices: ['cpu:0', 'cpu:1'] }, NOTHING, ['cpu:0 wasm', 'cpu:1 wasm']],
    [{ devices: ['cpu:0'], engine: 'wasm' }, TWO_GPUS, ['cpu:0 wasm']],
    [{ devices: ['cpu:7'], engine: 'tensorflow' }, here([], 'cpu'), ['cpu:7 tensorflow /engines/cpu']],
    [
      { devices: ['/GPU:1', '/device:CPU:0', '/gpu:0'] },
      TWO_GPUS,
      ['gpu:1 tensorflow /engines/cuda 5', 'cpu:0 tensorflow /engines/cuda', 'gpu:0 tensorflow /engines/cuda 3'],
    ],
  ])('%j', (options, at, expected) => expect(chosen(options, at)).toEqual(expected));

  it.each([
    [{ devices: [] }, 'devices must be a list of names'],
    [{ devices: 'gpu:0' }, 'devices must be a list of names'],
    [{ devices: ['tpu:0'] }, 'devices are named "gpu:0", "gpu:1" or "cpu:0", and not "tpu:0"'],
    [{ devices: [0] }, 'and not 0'],
    [{ devices: ['cpu:0', '/CPU:0'] }, 'devices names cpu:0 twice'],
    [{ devices: ['cpu:0'], threads: 1 }, 'leave threads out'],
    [{ engine: 'tensorflow', threads: 1 }, 'leave threads out'],
    [{ devices: ['gpu:0'], engine: 'wasm' }, 'the engine wasm computes on no GPU'],
    [{ devices: ['gpu:2'] }, 'there is no gpu:2: 2 GPUs are here'],
    [{ engine: 'webgpu' }, 'engine must be auto, wasm or tensorflow, not webgpu'],
  ])('%j is refused', (options, message) => {
    expect(() => chosen(options, TWO_GPUS)).toThrow(ArgumentError);
    expect(() => chosen(options, TWO_GPUS)).toThrow(message);
  });

  it('say which command installs what they need', () => {
    for (const [options, at, command] of [
      [{ engine: 'tensorflow' }, NOTHING, 'run `paceline engine install tensorflow`'],
      [{ devices: ['gpu:0'] }, here(['0'], 'cpu'), 'run `paceline engine install tensorflow --cuda`'],
    ] as const) {
      expect(() => chosen(options, at)).toThrow(EngineError);
      expect(() => chosen(options, at)).toThrow(command);
    }
  });
});
