import { expect, it } from 'vitest';
import { engineVariables, nvidiaDevices, prepareForTensorflow } from './environment.js';

it('each worker of a machine gets a GPU of its own, in turn', () => {
  const device = (index: number, env: NodeJS.ProcessEnv, gpus: number) => engineVariables(index, env, gpus)['CUDA_VISIBLE_DEVICES'];
  expect([0, 1, 2].map((index) => device(index, {}, 2))).toEqual(['0', '1', '0']);
  expect([0, 1].map((index) => device(index, { CUDA_VISIBLE_DEVICES: '3,5' }, 8))).toEqual(['3', '5']);
  expect(device(0, {}, 0)).toBeUndefined();
});

it('no GPU stays no GPU', () => {
  for (const CUDA_VISIBLE_DEVICES of ['', '-1']) expect(engineVariables(1, { CUDA_VISIBLE_DEVICES }, 4)).toEqual({ CUDA_VISIBLE_DEVICES });
});

it('GPUs of a list count up to the first that is none, as for CUDA', () => {
  const devices = (given: string) => nvidiaDevices({ CUDA_VISIBLE_DEVICES: given }, 2);
  expect(['', '-1', '1,-1,0', '0,2,1', '1, 0', 'GPU-8932f937,MIG-GPU-1/7/0'].map(devices)).toEqual([
    [],
    [],
    ['1'],
    ['0'],
    ['1', '0'],
    ['GPU-8932f937', 'MIG-GPU-1/7/0'],
  ]);
  expect(nvidiaDevices({ CUDA_VISIBLE_DEVICES: '0' }, 0)).toEqual([]);
});

it('passes on what finds and steers an engine, and nothing else', () => {
  const env = {
    TF_NUM_INTRAOP_THREADS: '4',
    PACELINE_HOME: '/x',
    XDG_CACHE_HOME: '/c',
    VK_ICD_FILENAMES: '/driver.json',
    MESA_VK_DEVICE_SELECT: '10de:2335',
  };
  expect(engineVariables(0, { ...env, DATABASE_URL: 'secret', AWS_SECRET_ACCESS_KEY: 's' }, 0)).toEqual(env);
});

it('what the user has set stays', () => {
  expect(prepareForTensorflow({ TF_NUM_INTRAOP_THREADS: '4' })).toMatchObject({
    TF_NUM_INTRAOP_THREADS: '4',
    TF_NUM_INTEROP_THREADS: '1',
    TF_DETERMINISTIC_OPS: '1',
  });
});
