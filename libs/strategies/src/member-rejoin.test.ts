/** A process that is killed and started again takes part in a training that went on without it. All end with the bits and the History of one that lost nobody. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BUILD, results, started } from './processes.fixture.js';
import { Programs, type Running } from './programs.fixture.js';

let programs: Programs;
/** Of backups; each process has one of its own. */
let folder: string;
beforeAll(() => {
  programs = new Programs();
  folder = join(mkdtempSync(join(tmpdir(), 'rejoin-')), 'backup-');
});
afterAll(() => {
  programs.dispose();
  rmSync(dirname(folder), { recursive: true, force: true });
});

/** Process `VICTIM` ends itself at a batch in its first life. Steps are slow until it has come again. Another model is trained before, and this one is evaluated; it has a backup, of which the first process has the file of a later epoch when it comes again. */
const TRAIN = (options = ''): string => `${BUILD}
import { BackupAndRestore } from 'paceline';
const given = { replicas: 4, threads: 1 };
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ ...given, onMemberLoss: 'continue', ${options} }) : new MirroredStrategy(given);
const [model, other] = strategy.scope(() => [build(), build()]);
const { VICTIM, STEP, LIFE } = process.env;
const isVictim = strategy.task?.index === Number(VICTIM);
let batches = 0;
let begun = 0;
const onBatchBegin = async () => {
  begun++;
  if (!strategy.task || strategy.isCatchingUp) return;
  if (isVictim && LIFE === '1' && ++batches === Number(STEP)) process.kill(process.pid, 'SIGKILL');
  if (strategy.members.lost.length > strategy.members.joined.length) await new Promise((resolve) => setTimeout(resolve, 100));
};
const first = await fit(other);
const scores = model.evaluate(xs, ys, { batchSize: 40 }).map((score) => score.dataSync()[0]);
const before = [...model.predict(xs, { batchSize: 31 }).dataSync()];
const backup = new BackupAndRestore(process.env.FOLDER + (strategy.task?.index ?? 'alone'), { keep: true });
const initialEpoch = await backup.restore(model);
const { history } = await fit(model, { epochs: Number(process.env.EPOCHS), batchSize: Number(process.env.BATCH ?? 40), initialEpoch, callbacks: [backup, new tf.CustomCallback({ onBatchBegin })] });
if (initialEpoch !== 0) throw new Error('it is not a training that begins anew');
const after = [...model.predict(xs, { batchSize: 31 }).dataSync()];
say({ first: first.history, scores, before, history, after, begun, digest: await digest(model), other: await digest(other), members: strategy.members });
await strategy.dispose();
`;

interface Again {
  readonly victim: number;
  readonly step: number;
  readonly env?: Readonly<Record<string, string>>;
}

/** @returns all processes, with the second life of the victim in its place */
async function startedAgain({ victim, step, env = {} }: Again, source = TRAIN(), processes = 3): Promise<Running[]> {
  const common = { VICTIM: String(victim), STEP: String(step), EPOCHS: '40', FOLDER: `${folder}${victim}-` };
  const running = await started(programs, source, processes, { ...common, LIFE: '1' });
  const killed = running[victim]!;
  await killed.ended;
  const again = programs.start(source, { ...killed.env, ...env, LIFE: '2' });
  return running.map((each, member) => (member === victim ? again : each));
}

describe('3 processes, of which one is killed and started again', () => {
  it('all three end with the weights, the History and the answers of a training that lost nobody', async () => {
    const [expected] = await results([programs.start(TRAIN(), { EPOCHS: '40', FOLDER: folder })]);
    const all = await results(await startedAgain({ victim: 0, step: 7 }));
    for (const { members, ...result } of all) {
      expect({ ...result, members: undefined }).toEqual({ ...expected, members: undefined });
      const { tasks, joined } = members as { tasks: unknown[]; joined: unknown[] };
      expect(tasks).toHaveLength(3);
      expect(joined).toMatchObject([{ type: 'worker', index: 0 }]);
    }
  }, 200_000);
});

describe('a process that is started again', () => {
  it.runIf(process.env['PACELINE_SOAK'] === '1')(
    'in another way is refused, and says what differs; the others train on',
    async () => {
      const running = await startedAgain({ victim: 2, step: 2, env: { EPOCHS: '41' } });
      const { status, errors } = await running[2]!.ended;
      expect(status).not.toBe(0);
      expect(errors).toMatch(
        /worker 2 cannot take part again: it is at "fit of the model .* epochs 41.*", and the others were at "fit of the model .* epochs 40/,
      );
      const [one, other] = await results(running.slice(0, 2));
      expect(one).toEqual(other);
      expect(one).toMatchObject({ begun: 160, members: { lost: [{ index: 2 }], joined: [] } });
    },
    200_000,
  );
});

/** The second process ends itself at a batch in its first life. The pipeline has 4 batches, of which each is ready after a while. */
const TRAIN_DATASET = `${BUILD}
const given = { replicas: 4, threads: 1 };
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ ...given, onMemberLoss: 'continue' }) : new MirroredStrategy(given);
const model = strategy.scope(() => build());
const { LIFE } = process.env;
let batches = 0;
let read = 0;
const onBatchBegin = async () => {
  if (!strategy.task || strategy.isCatchingUp) return;
  if (strategy.task.index === 1 && LIFE === '1' && ++batches === 6) process.kill(process.pid, 'SIGKILL');
  if (strategy.members.lost.length > strategy.members.joined.length) await new Promise((resolve) => setTimeout(resolve, 100));
};
const dataset = {
  size: 4,
  iterator: async () => {
    let from = 0;
    return {
      next: async () => {
        if (from >= 150) return { done: true, value: null };
        const size = Math.min(40, 150 - from);
        const value = { xs: tf.slice(xs, [from, 0], [size, 8]), ys: tf.slice(ys, [from, 0], [size, 1]) };
        from += 40;
        read++;
        await new Promise((resolve) => setTimeout(resolve, 2));
        return { done: false, value };
      },
    };
  },
};
const { history } = await model.fitDataset(dataset, { epochs: 40, verbose: 0, validationData: dataset, callbacks: new tf.CustomCallback({ onBatchBegin }) });
say({ history, read, digest: await digest(model), members: strategy.members });
await strategy.dispose();
`;

it('in fitDataset reads its pipeline again from the beginning, and comes to the same', async () => {
  const [expected] = await results([programs.start(TRAIN_DATASET)]);
  const all = await results(await startedAgain({ victim: 1, step: 6 }, TRAIN_DATASET, 2));
  for (const { members, ...result } of all) {
    expect({ ...result, members: undefined }).toEqual({ ...expected, members: undefined });
    expect((members as { joined: unknown[] }).joined).toMatchObject([{ type: 'worker', index: 1 }]);
  }
}, 200_000);
