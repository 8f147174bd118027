/** A program that is killed goes on from its backup, and ends with the bits of one that was left alone. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BackupAndRestore } from './backup.js';
import { ArgumentError } from './errors.js';
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

it('over two processes the first one has the backup, and the second one learns the epoch from it', async () => {
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
  const { digest } = await answerOf(programs.start(program(join(folder, 'alone'), undefined, example!.replace('epochs: 6', 'epochs: 4'))));
  expect(answers).toEqual([0, 1].map(() => ({ begins: '2', digest })));
});

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
