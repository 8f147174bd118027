/** Clusters by what managers of clusters say: environments as Slurm and Kubernetes set them, and DNS lookups that are given. */
import { processClock, type Clock } from '@paceline/exchange';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ApiClusterResolver } from './api-resolver.js';
import { DnsClusterResolver, type DnsOptions } from './dns-resolver.js';
import { ClusterError } from './errors.js';
import { KubernetesClusterResolver, type KubernetesOptions } from './kubernetes-resolver.js';
import { expandHostlist, SlurmClusterResolver, type SlurmOptions } from './slurm-resolver.js';

describe('Slurm', () => {
  /** As `srun --ntasks=5` on three nodes. */
  const STEP = {
    SLURM_JOB_ID: '17',
    SLURM_PROCID: '3',
    SLURM_NODEID: '1',
    SLURM_STEP_NUM_TASKS: '5',
    SLURM_STEP_NODELIST: 'node[01-02],gpu7',
    SLURM_STEP_TASKS_PER_NODE: '2(x2),1',
  };
  const resolve = (changed: Readonly<Record<string, string | undefined>> = {}, options: SlurmOptions = {}) =>
    new SlurmClusterResolver({ ...options, environment: { ...STEP, ...changed } }).resolve();

  it('ranks are workers, block by block; tasks of one node have ports of their own', () => {
    const { cluster, task, listenHost } = resolve()!;
    expect(cluster.tasks('worker')).toEqual(['node01:8888', 'node01:8889', 'node02:8888', 'node02:8889', 'gpu7:8888']);
    expect([task, listenHost]).toEqual([{ type: 'worker', index: 3 }, '0.0.0.0']);
  });

  it('ranks may go around the nodes, and have types', () => {
    const { cluster, task } = resolve(
      { SLURM_DISTRIBUTION: 'cyclic:block', SLURM_NODEID: '0' },
      { jobs: { chief: 1, worker: 4 }, portBase: 4600 },
    )!;
    expect(cluster.cluster).toEqual({ chief: ['node01:4600'], worker: ['node02:4600', 'gpu7:4600', 'node01:4601', 'node02:4601'] });
    expect(task).toEqual({ type: 'worker', index: 2 });
  });

  it('there is no cluster outside of Slurm', () => {
    expect(new SlurmClusterResolver({ environment: {} }).resolve()).toBeUndefined();
  });

  it.each([
    [{ SLURM_PROCID: undefined }, 'SLURM_PROCID is not set: start the processes by srun'],
    [{ SLURM_PROCID: 'first' }, 'SLURM_PROCID must be a whole number'],
    [{ SLURM_PROCID: '5', SLURM_NODEID: undefined }, 'SLURM_PROCID is 5, and there are 5 tasks'],
    [{ SLURM_NODEID: '2' }, 'rank 3 is on node 2, and should be on node 1'],
    [{ SLURM_STEP_NUM_TASKS: '6' }, 'SLURM_STEP_NUM_TASKS is 6, and SLURM_STEP_TASKS_PER_NODE says 5'],
    [{ SLURM_STEP_TASKS_PER_NODE: '5' }, 'speaks of 1 nodes, and SLURM_STEP_NODELIST of 3'],
    [{ SLURM_STEP_TASKS_PER_NODE: '2x2' }, 'must look like "2(x3),1"'],
    [{ SLURM_STEP_TASKS_PER_NODE: '99999(x99999)' }, 'the most is 4096'],
    [{ SLURM_DISTRIBUTION: 'arbitrary' }, 'use srun --distribution=block or cyclic'],
  ])('refuses %j', (changed, text) => {
    expect(() => resolve(changed)).toThrow(ClusterError);
    expect(() => resolve(changed)).toThrow(text);
  });

  it('refuses other numbers of tasks than the step has', () => {
    expect(() => resolve({}, { jobs: { worker: 4 } })).toThrow('jobs has 4 tasks, and the step has 5');
    expect(() => resolve({}, { jobs: { boss: 5 } as never })).toThrow('jobs.boss must be');
  });

  it('hostlists: ranges keep their zeros, brackets multiply', () => {
    expect(expandHostlist('node[01-03,07]')).toEqual(['node01', 'node02', 'node03', 'node07']);
    expect(expandHostlist('r[1-2]n[09-10].local,login')).toEqual(['r1n09.local', 'r1n10.local', 'r2n09.local', 'r2n10.local', 'login']);
    expect(expandHostlist('a[7-7],b')).toEqual(['a7', 'b']);
    for (const wrong of ['node[3-1]', 'node[1-', 'node[]', 'a,,b', '', 'node[a-b]', 'node[1-99999]', 'a[1-999]b[1-999]', 'node]1['])
      expect(() => expandHostlist(wrong), wrong).toThrow(ClusterError);
  });

  it('hostlists: whatever they are, there are at most 4096 hosts or an error that names them', () => {
    const text = fc.array(fc.constantFrom('n', '1', '09', '[', ']', '-', ',', '[1-3]', '[01-10]'), { maxLength: 12 });
    fc.assert(
      fc.property(text, (parts) => {
        try {
          expect(expandHostlist(parts.join('')).length).toBeLessThanOrEqual(4096);
        } catch (error) {
          expect(error).toBeInstanceOf(ClusterError);
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe('Kubernetes', () => {
  const POD = { KUBERNETES_SERVICE_HOST: '10.96.0.1', HOSTNAME: 'train-2' };
  const resolve = (options: Partial<KubernetesOptions> = {}, environment: Readonly<Record<string, string>> = POD) =>
    new KubernetesClusterResolver({ service: 'trainers', replicas: 3, environment, ...options }).resolve();

  it('pods of a StatefulSet are workers by their ordinals', () => {
    const { cluster, task, listenHost } = resolve()!;
    expect(cluster.tasks('worker')).toEqual(['train-0.trainers:4600', 'train-1.trainers:4600', 'train-2.trainers:4600']);
    expect([task, listenHost]).toEqual([{ type: 'worker', index: 2 }, '0.0.0.0']);
  });

  it('with a namespace names are whole, and a pod listens at its address', () => {
    const { cluster, listenHost } = resolve({ namespace: 'lab', port: 9000 }, { ...POD, POD_IP: '10.1.2.3' })!;
    expect(cluster.tasks('worker')[1]).toBe('train-1.trainers.lab.svc.cluster.local:9000');
    expect(listenHost).toBe('10.1.2.3');
    expect(resolve({}, { ...POD, POD_IP: '' })!.listenHost).toBe('0.0.0.0'); // as a manifest sets what it does not know
  });

  it('ordinals may begin elsewhere than at 0', () => {
    const { cluster, task } = resolve({ firstOrdinal: 2 })!;
    expect([cluster.tasks('worker')[0], cluster.tasks('worker').length, task?.index]).toEqual(['train-2.trainers:4600', 3, 0]);
    expect(() => resolve({ firstOrdinal: 3 })).toThrow('from ordinal 3 on');
    expect(() => resolve({ firstOrdinal: -1 })).toThrow('firstOrdinal must be a whole number from 0');
  });

  it('there is no cluster outside of Kubernetes', () => {
    expect(resolve({}, { HOSTNAME: 'laptop-2' })).toBeUndefined();
  });

  it.each([
    [{ service: 'Trainers' }, POD, 'service must be a DNS name'],
    [{ replicas: 0 }, POD, 'replicas must be the number of pods'],
    [{ replicas: 2 }, POD, 'this pod is train-2, and there are 2 replicas'],
    [{}, { ...POD, HOSTNAME: 'train-7d4b9' }, 'does not end in an ordinal'],
  ])('refuses %j', (options, environment, text) => {
    expect(() => resolve(options, environment)).toThrow(ClusterError);
    expect(() => resolve(options, environment)).toThrow(text);
  });
});

describe('DNS', () => {
  /** Time passes when somebody waits. */
  function patient(): Clock {
    let nowMs = 0;
    const after: Clock['after'] = (ms, act) => {
      const handle = setImmediate(() => {
        nowMs += ms;
        act();
      });
      return () => clearImmediate(handle);
    };
    return { ...processClock, now: () => nowMs, after };
  }
  const lookUp = (answers: readonly (readonly string[] | Error)[], options: Partial<DnsOptions> = {}) => {
    let asked = 0;
    const given = (): Promise<readonly string[]> => {
      const answer = answers[Math.min(asked++, answers.length - 1)]!;
      return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
    };
    const more = { ownAddresses: ['127.0.0.1', '10.0.0.2'], clock: patient(), deadlineMs: 10_000, ...options };
    return DnsClusterResolver.lookUp({ name: 'tasks.train', members: 3, port: 4600, lookUp: given, ...more });
  };

  it('waits until all members have an address, and takes the same order in all', async () => {
    const all = ['10.0.0.9', '10.0.0.2', '10.0.0.3', '10.0.0.9'];
    const { cluster, task } = (await lookUp([new Error('ENOTFOUND'), ['10.0.0.9'], all])).resolve();
    expect(cluster.tasks('worker')).toEqual(['10.0.0.2:4600', '10.0.0.3:4600', '10.0.0.9:4600']);
    expect(task).toEqual({ type: 'worker', index: 0 });
  });

  it('members with an address of each family are counted once, also while some are missing', async () => {
    const pair = (i: number): string[] => [`10.0.0.${i}`, `fd00::${i}`];
    const all = [1, 2, 3, 4].flatMap(pair);
    const answers = [[1, 2].flatMap(pair), all]; // two of four members have four addresses
    const options = { members: 4, ownAddresses: ['127.0.0.1', ...pair(2)] };
    const { cluster, task } = (await lookUp(answers, options)).resolve();
    expect([cluster.tasks('worker'), task?.index]).toEqual([[1, 2, 3, 4].map((i) => `10.0.0.${i}:4600`), 1]);
    const sixes = [1, 2, 3, 4].map((i) => `[fd00::${i}]:4600`);
    expect((await lookUp(answers, { ...options, family: 6 })).resolve().cluster.tasks('worker')).toEqual(sixes);
    expect((await lookUp([all.filter((_, i) => i % 2 === 1)], options)).resolve().cluster.tasks('worker')).toEqual(sixes);
    await expect(lookUp(answers, { family: 5 as never })).rejects.toThrow('family must be 4 or 6');
  });

  it('says what is missing, and when none of the addresses is its own', async () => {
    await expect(lookUp([['10.0.0.2', '10.0.0.9']])).rejects.toThrow(
      'waited 10000 ms for tasks.train to have 3 addresses of one family, and it has 2',
    );
    await expect(lookUp([new Error('getaddrinfo ENOTFOUND')])).rejects.toThrow('and getaddrinfo ENOTFOUND');
    await expect(lookUp([['10.0.0.4', '10.0.0.5', '10.0.0.6']])).rejects.toThrow('none of the addresses of tasks.train');
    await expect(lookUp([[]], { members: 0 })).rejects.toMatchObject({ name: 'ClusterError', code: 'STRATEGY_CLUSTER' });
  });

  it('a look-up that is never answered ends with the deadline, and one that throws is told', async () => {
    const more = { ownAddresses: ['10.0.0.2'], clock: patient(), deadlineMs: 10_000 };
    const ask = (given: () => Promise<readonly string[]> | readonly string[]) =>
      DnsClusterResolver.lookUp({ name: 'tasks.train', members: 1, port: 4600, lookUp: given, ...more });
    await expect(ask(() => new Promise(() => undefined))).rejects.toThrow(/to have 1 addresses .*the look-up took longer than 10000 ms/);
    await expect(
      ask(() => {
        throw new Error('no such resolver');
      }),
    ).rejects.toThrow('no such resolver');
    expect((await ask(() => ['10.0.0.2'])).resolve().cluster.members).toHaveLength(1);
  });

  it('looks names up by the system where no lookup is given', async () => {
    const resolver = await DnsClusterResolver.lookUp({ name: '127.0.0.1', members: 1, port: 4600 });
    expect(resolver.resolve().cluster.members).toMatchObject([{ host: '127.0.0.1', port: 4600 }]);
  });
});

describe('a cluster spec of the service', () => {
  const of = (name: string, servers: readonly string[], workers: readonly string[]) => ({ id: `id of ${name}`, name, servers, workers });
  const client = { clusterSpecs: () => Promise.resolve([of('two', ['s0:7000'], ['w0:7001', 'w1:7001']), of('empty', [], [])]) };

  it('is found by name or id, with the task that is given or none', async () => {
    const worker = await ApiClusterResolver.lookUp(client, { clusterSpec: 'two', task: { type: 'worker', index: 1 } });
    expect(worker.resolve().cluster.cluster).toEqual({ worker: ['w0:7001', 'w1:7001'], ps: ['s0:7000'] });
    expect(worker.resolve().task).toEqual({ type: 'worker', index: 1 });
    expect((await ApiClusterResolver.lookUp(client, { clusterSpec: 'id of two' })).resolve().task).toBeUndefined();
  });

  it('is refused with what there is', async () => {
    const lookUp = (clusterSpec: string, index = 0, from: Parameters<typeof ApiClusterResolver.lookUp>[0] = client) =>
      ApiClusterResolver.lookUp(from, { clusterSpec, task: { type: 'worker', index } });
    await expect(lookUp('three')).rejects.toThrow('no cluster spec is called "three": there are "two", "empty"');
    await expect(lookUp('two', 2)).rejects.toThrow(ClusterError);
    await expect(lookUp('empty')).rejects.toThrow(ClusterError);
    await expect(lookUp('two', 0, { clusterSpecs: () => Promise.resolve([]) })).rejects.toThrow('the team has none');
  });
});
