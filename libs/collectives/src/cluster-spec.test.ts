/** TF_CONFIG as TensorFlow writes it, and what is wrong in others. */
import { describe, expect, it } from 'vitest';
import { ClusterSpec, GivenResolver, memberIndex, memberName, TfConfigResolver } from './cluster-spec.js';
import { ClusterError } from './errors.js';

const resolved = (config: unknown) =>
  new TfConfigResolver({ TF_CONFIG: typeof config === 'string' ? config : JSON.stringify(config) }).resolve();

describe('TF_CONFIG', () => {
  it('gives chief and workers, in this order, and leaves the others out', () => {
    const { cluster, task } = resolved({
      cluster: { chief: ['h0:2222'], worker: ['h1:2222', '[::1]:2223'], ps: ['h2:2222'], evaluator: ['h3:1'] },
      task: { type: 'worker', index: 1 },
    })!;
    expect(cluster.members.map(memberName)).toEqual(['chief 0 (h0:2222)', 'worker 0 (h1:2222)', 'worker 1 (::1:2223)']);
    expect(memberIndex(cluster, task)).toBe(2);
    expect(() => memberIndex(cluster, { type: 'ps', index: 0 })).toThrow('a task of type ps takes no part');
    expect(cluster.tasks('ps')).toEqual(['h2:2222']);
  });

  it('is one process where nothing is said', () => {
    expect(new TfConfigResolver({}).resolve()).toBeUndefined();
    expect(resolved('')).toBeUndefined();
    expect(resolved({ task: { type: 'worker', index: 0 } })).toBeUndefined();
    expect(resolved({ cluster: {} })).toBeUndefined();
    expect(resolved({ cluster: { worker: [] }, task: { type: 'worker', index: 0 } })).toBeUndefined();
  });

  const cluster = { worker: ['a:1', 'b:2'] };
  const task = { type: 'worker', index: 0 };
  it.each([
    ['{', 'TF_CONFIG is not JSON'],
    ['[]', 'TF_CONFIG must be an object'],
    [{ cluster: [], task }, 'cluster must be an object'],
    [{ cluster: { workers: ['a:1'] }, task }, 'cluster.workers: there is no task type "workers"'],
    [{ cluster: { worker: 'a:1' }, task }, 'cluster.worker must be a list'],
    [{ cluster: { worker: { 0: 'a:1', 2: 'b:1' } }, task }, 'cluster.worker has no task 1'],
    [{ cluster: { worker: { first: 'a:1' } }, task }, 'cluster.worker has no task 0'],
    [{ cluster: { worker: ['a'] }, task }, 'cluster.worker[0] must be HOST:PORT'],
    [{ cluster: { worker: ['a:70000'] }, task }, 'cluster.worker[0] must be HOST:PORT with a port of 1 to 65535'],
    [{ cluster: { worker: ['http://a:1'] }, task }, 'cluster.worker[0] must be HOST:PORT'],
    [{ cluster: { worker: ['a:1', 'a:1'] }, task }, 'cluster.worker[1] and cluster.worker[0] are both a:1'],
    [{ cluster: { chief: ['a:1', 'b:1'] }, task }, 'there is one chief at most'],
    [{ cluster, task: [] }, 'TF_CONFIG.task must be an object'],
    [
      { cluster, task: { type: 'worker' } },
      'TF_CONFIG.task.index must be a whole number below 2, the number of tasks of type worker in the cluster, not missing',
    ],
    [{ cluster, task: { type: 'boss', index: 0 } }, 'TF_CONFIG.task.type must be one of chief, worker, ps, evaluator'],
    [{ cluster, task: { type: 'worker', index: 2 } }, 'TF_CONFIG.task.index must be a whole number below 2'],
    [{ cluster, task: { type: 'worker', index: '1.5' } }, 'TF_CONFIG.task.index must be a whole number'],
  ])('%j is refused', (config, message) => {
    expect(() => resolved(config)).toThrow(ClusterError);
    expect(() => resolved(config)).toThrow(message);
  });

  it('may have what TensorFlow takes too: maps from indices, an index as a text, and no task', () => {
    const sparse = { worker: { 1: 'b:2', 0: 'a:1' }, chief: ['c:3'] };
    const { cluster: spec, task: found } = resolved({ cluster: sparse, task: { type: 'worker', index: '1' } })!;
    expect(spec.members.map(memberName)).toEqual(['chief 0 (c:3)', 'worker 0 (a:1)', 'worker 1 (b:2)']);
    expect(found).toEqual({ type: 'worker', index: 1 });
    expect(resolved({ cluster: sparse, task: { type: 'chief' } })!.task).toEqual({ type: 'chief', index: 0 });
    for (const none of [{ cluster }, { cluster, task: {} }, { cluster, task: null }]) {
      const alone = resolved(none)!;
      expect(alone.task).toBeUndefined();
      expect(() => memberIndex(alone.cluster, alone.task)).toThrow('task is missing: say which task of the cluster this process is');
    }
  });

  it('may leave an evaluator out of the cluster, as Kubeflow does', () => {
    const found = (cluster: object, index: unknown) => resolved({ cluster, task: { type: 'evaluator', index } })!;
    const { cluster: spec, task: beside } = found(cluster, '0');
    expect(beside).toEqual({ type: 'evaluator', index: 0 });
    expect(() => memberIndex(spec, beside)).toThrow('a task of type evaluator takes no part in the training');
    expect(found(cluster, 3).task).toEqual({ type: 'evaluator', index: 3 });
    expect(() => found(cluster, -1)).toThrow('TF_CONFIG.task.index must be a whole number from 0 on, not -1');
    expect(() => found(Object.assign({ evaluator: ['e:1'] }, cluster), 1)).toThrow('below 1, the number of tasks of type evaluator');
  });

  it('can be given in the program', () => {
    expect(new GivenResolver(new ClusterSpec(cluster), task).resolve().task).toEqual(task);
    expect(() => new GivenResolver(cluster, { type: 'chief', index: 0 }).resolve()).toThrow('task.index must be a whole number below 0');
  });
});
