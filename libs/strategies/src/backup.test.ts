/** A program that is killed goes on from its backup, and ends with the bits of one that was left alone. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BackupAndRestore } from './backup.js';
import { ArgumentError, UnsupportedError } from './errors.js';
import { LocalUpdateStrategy } from './local-update.js';
import { compiled, mlp } from './models.fixture.js';
import { Programs, tfConfigs, type Running } from './programs.fixture.js';

let programs: Programs;
let folder: string;
beforeAll(async () => {
  await tf.setBackend('cpu');
  programs = new Programs();
  folder = mkdtempSync(join(tmpdir(), 'backup-test-'));
});
afterAll(() => {
  programs.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const page = readFileSync(join(import.meta.dirname, '../../../docs/library.md'), 'utf8');
const [, example] = /```js\n([\s\S]*?)```/.exec(page.split('## Going on after a crash')[1]!)!;
const DIGEST = `
import { createHash as made } from 'node:crypto';
const sum = made('sha256');
for (const weight of model.getWeights()) sum.update(new Uint8Array(weight.dataSync().buffer.slice(0)));
console.log('digest', sum.digest('hex'), model.optimizer.iterations);
`;
/** With its own folder; it is killed in the middle of an epoch where that is said. */
const program = (place: string, killIn?: number, source = example!): string => {
  const killer = `{ onEpochBegin: (epoch) => void (now = epoch), onBatchEnd: (batch) => now === ${killIn} && batch === 2 && process.kill(process.pid, 'SIGKILL') }`;
  const given = source
    .replaceAll("'./backup'", JSON.stringify(place))
    .replace('callbacks: [backup]', killIn === undefined ? 'callbacks: [backup]' : 'callbacks: [backup, killer]')
    .replace('await strategy.dispose();', `${DIGEST}await strategy.dispose();`);
  if (killIn === undefined) return given;
  return given.replace('const args', `let now;\nconst killer = new tf.CustomCallback(${killer}, 'auto');\nconst args`);
};
const answerOf = async ({ ended }: Running): Promise<{ readonly begins: string; readonly digest: string }> => {
  const { status, output, errors } = await ended;
  expect(status, errors).toBe(0);
  return { begins: /begins with epoch (\d+)/.exec(output)![1]!, digest: /digest (.*)/.exec(output)![1]! };
};

it('the example, killed in its fourth epoch, goes on with it and ends in the bits of one that was not', async () => {
  expect(example!.split('\n').length).toBeLessThanOrEqual(31);
  const place = join(folder, 'one');
  const undisturbed = await answerOf(programs.start(program(join(folder, 'undisturbed'))));
  expect(undisturbed.begins).toBe('0');
  const { status, errors } = await programs.start(program(place, 3)).ended;
  expect(status, errors).toBeNull();
  expect(existsSync(join(place, 'backup.paceline'))).toBe(true);
  expect(await answerOf(programs.start(program(place)))).toEqual({ begins: '3', digest: undisturbed.digest });
  expect(existsSync(join(place, 'backup.paceline')), 'a training that has ended has no backup').toBe(false);
});

/** `npm run soak` has it. */
it.runIf(process.env['PACELINE_SOAK'] === '1')('so does a training of local updates that are averaged', async () => {
  const source = example!
    .replaceAll('MirroredStrategy', 'LocalUpdateStrategy')
    .replace('{ replicas: 2 }', '{ replicas: 2, localSteps: 3 }');
  const place = join(folder, 'local');
  const undisturbed = await answerOf(programs.start(program(join(folder, 'local-undisturbed'), undefined, source)));
  expect((await programs.start(program(place, 3, source)).ended).status).toBeNull();
  expect(await answerOf(programs.start(program(place, undefined, source)))).toEqual({ begins: '3', digest: undisturbed.digest });
});

it.runIf(process.env['PACELINE_SOAK'] === '1')(
  'over two processes the first one has the backup, and the second one learns the epoch from it',
  async () => {
    const source = example!
      .replaceAll('MirroredStrategy', 'MultiWorkerMirroredStrategy')
      .replace('{ replicas: 2 }', "{ replicas: 2, threads: 1, optimizerSharding: 'sharded' }")
      .replace('epochs: 6', 'epochs: 4');
    const together = async (killIn?: number): Promise<Running[]> => {
      const configs = await tfConfigs(2);
      return configs.map((TF_CONFIG, i) =>
        programs.start(program(join(folder, `member-${i}`), i === 0 ? killIn : undefined, source), {
          TF_CONFIG,
          PACELINE_CLUSTER_SECRET: 'the secret of a test of backups',
        }),
      );
    };
    const [first, second] = (await together(2)).map(({ ended }) => ended);
    const ended = await first!;
    expect(ended.status, ended.output + ended.errors).toBeNull();
    expect((await second!).errors).toContain('MemberError');
    expect(existsSync(join(folder, 'member-1/backup.paceline'))).toBe(false);
    const answers = await Promise.all((await together()).map(answerOf));
    const { digest } = await answerOf(
      programs.start(program(join(folder, 'alone'), undefined, example!.replace('epochs: 6', 'epochs: 4'))),
    );
    expect(answers).toEqual([0, 1].map(() => ({ begins: '2', digest })));
  },
);

it('a damaged file, and the backup of another model, are refused in words', async () => {
  const place = join(folder, 'damaged');
  const backup = new BackupAndRestore(place);
  await expect(backup.onTrainBegin()).rejects.toThrow('await backup.restore(model)');
  const model = compiled(mlp(), () => tf.train.adam(0.02));
  expect(await backup.restore(model)).toBe(0);
  await backup.onTrainBegin();
  await backup.onEpochEnd(4);
  expect(await new BackupAndRestore(place).restore(model)).toBe(5);
  await expect(new BackupAndRestore(place).restore(compiled(mlp('softmax', 4), () => 'sgd'))).rejects.toThrow('is of another model');
  const file = join(place, 'backup.paceline');
  const bytes = readFileSync(file);
  bytes[bytes.length - 20]! ^= 1;
  writeFileSync(file, bytes);
  await expect(new BackupAndRestore(place).restore(model)).rejects.toThrow(ArgumentError);
  await expect(new BackupAndRestore(place).restore(model)).rejects.toThrow('is damaged: delete it');
});

it('makes its folder also where it was not the one to write when the training began', async () => {
  const place = join(folder, 'late/made');
  const backup = new BackupAndRestore(place);
  const model = compiled(mlp(), () => tf.train.adam(0.02));
  await backup.restore(model);
  await backup.onTrainBegin();
  rmSync(place, { recursive: true });
  await backup.onEpochEnd(2);
  expect(await new BackupAndRestore(place).restore(model)).toBe(3);
});

it('options that it has not are refused: a misspelt one would delete the backup', () => {
  for (const [options, message] of [
    [{ keeep: true }, 'BackupAndRestore has no option "keeep": it takes keep'],
    [{ keep: 'yes' }, 'keep must be true or false, not yes'],
    [null, 'BackupAndRestore takes an object with keep'],
  ] as const) {
    expect(() => new BackupAndRestore('folder', options as never)).toThrow(ArgumentError);
    expect(() => new BackupAndRestore('folder', options as never)).toThrow(message);
  }
});

it('a strategy that keeps more than weights and optimizer state is refused', async () => {
  for (const options of [{ outer: 'nesterov' }, { outer: 'elastic' }, { outer: 'average', fragments: 2 }, { outer: 'average' }] as const) {
    const { outer } = options;
    const strategy = new LocalUpdateStrategy({ threads: 1, replicas: 2, localSteps: 2, ...options });
    const model = strategy.distribute(compiled(mlp(), () => tf.train.adam(0.02)));
    const restored = new BackupAndRestore(join(folder, outer)).restore(model);
    if (!('fragments' in options) && outer === 'average') expect(await restored).toBe(0);
    else {
      await expect(restored).rejects.toThrow(UnsupportedError);
      await expect(new BackupAndRestore(join(folder, outer)).restore(model)).rejects.toThrow("use outer: 'average'");
    }
    await strategy.dispose();
  }
});

it('what a crash leaves beside the backup has one name, and the next backup takes its place', async () => {
  const place = join(folder, 'crashed');
  const backup = new BackupAndRestore(place);
  await backup.restore(compiled(mlp(), () => 'sgd'));
  mkdirSync(join(place, 'backup.paceline'), { recursive: true }); // so that the file written beside is left
  await expect(backup.onEpochEnd(0)).rejects.toThrow();
  expect(readdirSync(place).sort()).toEqual(['backup.paceline', 'backup.paceline.tmp']);
  rmSync(join(place, 'backup.paceline'), { recursive: true });
  await backup.onEpochEnd(1);
  expect(readdirSync(place)).toEqual(['backup.paceline']);
});

const MANY = 2 ** 24 + 1; // no float32
it('a count of steps beyond the whole numbers of a float32 comes back', async () => {
  const place = join(folder, 'many');
  const model = compiled(mlp(), () => tf.train.adam(0.02));
  const backup = new BackupAndRestore(place);
  await backup.restore(model);
  await backup.onTrainBegin();
  Object.assign(model.optimizer, { iterations_: MANY });
  await backup.onEpochEnd(0);
  const other = compiled(mlp(), () => tf.train.adam(0.02));
  expect(await new BackupAndRestore(place).restore(other)).toBe(1);
  expect(other.optimizer).toMatchObject({ iterations: MANY });
});

it.runIf(process.env['PACELINE_SOAK'] === '1')(
  'over two processes the second one learns every step, and that the first one has no use for its file',
  async () => {
    const place = join(folder, 'many-0');
    const source = `${example!.split('console.log')[0]!.replaceAll('MirroredStrategy', 'MultiWorkerMirroredStrategy').replace('{ replicas: 2 }', '{ replicas: 2, threads: 1, deadlineMs: 20_000 }')}
console.log('steps', initialEpoch, model.optimizer.iterations);
await strategy.dispose();`;
    const together = async (): Promise<Running['ended'][]> => {
      const env = { PACELINE_CLUSTER_SECRET: 'the secret of a test of backups' };
      const configs = await tfConfigs(2);
      return configs.map(
        (TF_CONFIG, i) => programs.start(program(join(folder, `many-${i}`), undefined, source), { TF_CONFIG, ...env }).ended,
      );
    };
    const alone = `${example!.split('console.log')[0]!}
model.optimizer.iterations_ = ${MANY};
await backup.onTrainBegin();
await backup.onEpochEnd(2);
await strategy.dispose();`;
    const written = await programs.start(program(place, undefined, alone)).ended;
    expect(written.status, written.errors).toBe(0);
    for (const { status, output, errors } of await Promise.all(await together())) {
      expect(status, errors).toBe(0);
      expect(output).toContain(`steps 3 ${MANY}`);
    }
    const file = join(place, 'backup.paceline');
    const bytes = readFileSync(file);
    bytes[bytes.length - 20]! ^= 1;
    writeFileSync(file, bytes);
    const [first, second] = await Promise.all(await together());
    expect(first!.errors).toContain('is damaged: delete it');
    expect(second!.errors).toContain('ArgumentError: the first process cannot use its backup');
  },
);
