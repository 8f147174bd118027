/** `paceline data` as people use it, against an api of the test: import, look, go on after a kill, remove; and what is said of wrong data. */
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT } from '@paceline/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlPlane, type Caller } from '../api/services.js';
import { createHome, until, type Finished, type Home } from './command-line.js';

let home: Home;
let plane: ControlPlane;
let team: Caller;
beforeAll(async () => {
  home = createHome();
  plane = await ControlPlane.start();
  team = await plane.team('people');
});
afterAll(async () => {
  await home.dispose();
  await plane.stop();
});

const env = (): NodeJS.ProcessEnv => ({ PACELINE_URL: plane.api.url, PACELINE_API_KEY: team.key });
const run = (...args: string[]): Promise<Finished> => home.run(['data', ...args], env());
async function json<T>(...args: string[]): Promise<T> {
  const { exit, stdout, stderr } = await run(...args, '--json');
  expect(exit, stderr).toBe(EXIT.ok);
  return JSON.parse(stdout) as T;
}
const file = (name: string, text: string): string => {
  const path = join(home.folder, name);
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, text);
  return path;
};
const SPECIES = ['setosa', 'virginica', 'versicolor'];
const flowers = (rows: number): string =>
  ['length,width,species', ...Array.from({ length: rows }, (_, i) => `${(i % 17) + 0.5},${(i * 7) % 23},${SPECIES[i % 3]}`)].join('\n');

describe('paceline data', () => {
  it('imports a CSV file, and shows what it has become', async () => {
    const { exit, stdout, stderr } = await run('import', file('flowers.csv', flowers(300)), '--label', 'species', '--split', '0.8/0.1/0.1');
    expect(exit, stderr).toBe(EXIT.ok);
    expect(stdout).toMatch(/^flowers@[0-9a-f]{12} {2}300 rows/);
    expect(stdout).toMatch(/train 240 {2}validation 30 {2}test 30/);
    expect(stdout).toMatch(/species \(label\) +category +3: /);
    expect(stderr).toContain('train --dataset flowers');
    const listed = await run('list');
    expect(listed.stdout).toMatch(/mnist +built in/);
    expect(listed.stdout).toMatch(/flowers +[0-9a-f]{12} +240 +30/);
    const { dataset } = await json<{ dataset: { version: { version: string; rows: number; schema: { label: string } } } }>(
      'show',
      'flowers',
    );
    expect(dataset.version).toMatchObject({ rows: 300, schema: { label: 'species' } });
    const preview = await json<{ columns: string[]; rows: unknown[][] }>('preview', 'flowers', '--rows', '3');
    expect(preview.columns).toEqual(['length', 'width', 'species']);
    expect(preview.rows).toHaveLength(3);
    expect(SPECIES).toContain(preview.rows[0]![2]);
    expect((await run('verify', `flowers@${dataset.version.version.slice(0, 8)}`)).stdout).toMatch(/whole: 3 shards/);
  });

  it('says what is missing for a run: rows to measure on, and a label', async () => {
    const { stderr } = await run('import', file('plain.csv', 'a,b\n1,2.5\n3,4\n5,6.5\n'));
    expect(stderr).toMatch(/No column is the label.*--label COLUMN/);
    expect(stderr).toMatch(/measured on rows that it has seen.*--split 0\.8\/0\.2/);
    const whole = await run('import', file('plain.csv', 'a,b\n1,2.5\n3,4\n5,6.5\n7,8.5\n'), '--label', 'b', '--split', '0.5/0.5');
    expect(whole.stderr).not.toMatch(/No column|measured on/);
  });

  it('makes the same version of the same data, and another of other data', async () => {
    const path = file('same.csv', flowers(90));
    const [first, second] = [
      await json<{ version: string }>('import', path),
      await json<{ version: string }>('import', path, '--name', 'same'),
    ];
    expect(second.version).toBe(first.version);
    const other = await json<{ version: string }>('import', file('same.csv', flowers(91)));
    expect(other.version).not.toBe(first.version);
    const { dataset } = await json<{ dataset: { versions: { version: string }[] } }>('show', 'same');
    expect(dataset.versions.map(({ version }) => version)).toEqual([other.version, first.version]);
  });

  it('takes the splits from files of their own', async () => {
    const made = await json<{ schema: { splits: object[] } }>(
      'import',
      file('wine.csv', flowers(60)),
      '--test-file',
      file('wine-test.csv', flowers(12)),
    );
    expect(made.schema.splits).toMatchObject([
      { name: 'train', rows: 60 },
      { name: 'test', rows: 12 },
    ]);
  });

  it('goes on where it was killed: shards are kept, and nothing of it was to be seen', async () => {
    const go = join(home.folder, 'go');
    // 32 KiB a row: the first shard is full after 1024 rows, is sent, and then the module waits to be killed.
    const module = file(
      'rows.mjs',
      `import { existsSync } from 'node:fs';
       export default async function* () {
         for (let i = 0; i < 2100; i++) {
           while (i === 1500 && !existsSync(${JSON.stringify(go)})) await new Promise((done) => setTimeout(done, 50));
           yield { x: new Float32Array(8192).fill(i), y: i % 2 };
         }
       }`,
    );
    const args = ['import', '--module', module, '--name', 'long', '--label', 'y'];
    const isLarge = (name: string): boolean => statSync(join(plane.folder, 'datasets', name)).size > 16 << 20;
    const shards = (): string[] =>
      readdirSync(join(plane.folder, 'datasets'), { recursive: true, encoding: 'utf8' }).filter(
        (name) => name.endsWith('.safetensors') && isLarge(name),
      );
    const killed = home.start(['data', ...args], env());
    await until('the first shard in the data store', () => shards().length === 1);
    killed.child.kill('SIGKILL');
    expect((await killed.finished).exit).toBe('SIGKILL');
    const [kept] = shards();
    const before = statSync(join(plane.folder, 'datasets', kept!)).mtimeMs;
    expect((await run('show', 'long')).exit).toBe(EXIT.notFound);
    writeFileSync(go, '');
    const { exit, stderr, stdout } = await run(...args);
    expect(exit, stderr).toBe(EXIT.ok);
    expect(stdout).toMatch(/^long@[0-9a-f]{12} {2}2,?100 rows/);
    expect(stderr).toMatch(/1 shard of 3 already stored/);
    expect(statSync(join(plane.folder, 'datasets', kept!)).mtimeMs).toBe(before);
    expect((await run('verify', 'long')).stdout).toMatch(/whole: 3 shards/);
  });

  it('removes, and knows then which name was meant', async () => {
    await json('import', file('rubbish.csv', flowers(30)));
    expect((await run('remove', 'rubbish')).stdout).toMatch(/^removed {2}rubbish/);
    const gone = await run('show', 'rubbish');
    expect(gone.exit).toBe(EXIT.notFound);
    expect((await run('show', 'flowes')).stderr).toMatch(/no dataset flowes – did you mean flowers\?/);
    expect((await run('show', 'flowers@00000000')).stderr).toMatch(/flowers has no version that begins with 00000000/);
    expect((await run('remove', 'mnist')).stderr).toMatch(/built-in/);
  });

  it.each<[string, () => string[], number, RegExp]>([
    ['no source', () => [], EXIT.usage, /Name the sources, or a module/],
    ['a file that is not there', () => ['nowhere.csv'], EXIT.notFound, /nowhere\.csv/],
    ['a value that is missing', () => [file('holes.csv', 'a,b\n1,2\n3,\n5,6\n')], EXIT.badSpec, /holes\.csv, row 2, column "b"/],
    ['a row that is too long', () => [file('long.csv', 'a,b\n1,2\n3,4,5\n')], EXIT.badSpec, /long\.csv, row 2/],
    ['a split that is none', () => [file('few.csv', flowers(9)), '--split', '0.8/0.8'], EXIT.usage, /--split "0.8\/0.8" is not/],
    ['a label that is no column', () => [file('few.csv', flowers(9)), '--label', 'kind'], EXIT.badSpec, /kind/],
    ['a name that is built in', () => [file('few.csv', flowers(9)), '--name', 'mnist'], EXIT.usage, /mnist is a built-in dataset/],
  ])('says what is wrong with %s', async (_, args, code, why) => {
    const { exit, stderr } = await run('import', ...args());
    expect(stderr).toMatch(why);
    expect(exit).toBe(code);
    expect(stderr).not.toMatch(/\n {4}at /);
  });
});
