/**
 * Processes that find the lock of a dead one, and the broom of one that died while it swept, taken through their file operations one by one in
 * many orders: whatever the order, no two of them hold the lock.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import ts from 'typescript';

const SCHEDULES = 250;
const root = mkdtempSync(join(tmpdir(), 'paceline-lock-race-'));
const children: ChildProcess[] = [];

/** Stops before each operation on the lock's files until it is told to go on. */
const STEPPED = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { writeSync, readSync } = fs;
const byte = new Uint8Array(1);
const say = (line) => writeSync(1, line + '\\n');
const wait = () => { if (readSync(0, byte, 0, 1) === 0) process.exit(); };
const line = () => { let text = ''; for (wait(); byte[0] !== 10; wait()) text += String.fromCharCode(byte[0]); return text; };
for (const name of ['linkSync', 'readFileSync', 'rmSync', 'renameSync']) {
  const real = fs[name];
  fs[name] = (...args) => {
    if (String(args[0]).startsWith(process.argv[2])) { say(name); line(); }
    return real(...args);
  };
}
syncBuiltinESMExports();
const { lockFile } = await import(process.argv[3]);
say('ready');
for (;;) {
  const lock = lockFile(line());
  say('heldBy' in lock ? 'done' : 'done holding');
}`;

class Stepped {
  private readonly lines: AsyncIterator<string>;
  private constructor(readonly child: ChildProcess) {
    children.push(child);
    this.lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  }

  static async start(): Promise<Stepped> {
    const child = spawn(process.execPath, [join(root, 'stepped.mjs'), root, pathToFileURL(join(root, 'process-lock.js')).href], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const stepped = new Stepped(child);
    expect(await stepped.heard()).toBe('ready');
    return stepped;
  }

  /** @returns the operation that it is about to do, or `done` */
  async tell(text = ''): Promise<string> {
    this.child.stdin!.write(`${text}\n`);
    return this.heard();
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }

  private async heard(): Promise<string> {
    const { value, done } = await this.lines.next();
    if (done) throw new Error('the process has ended');
    return value;
  }
}

beforeAll(() => {
  for (const name of ['process-lock', 'end-process']) {
    const source = readFileSync(join(import.meta.dirname, `${name}.ts`), 'utf8');
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
    writeFileSync(join(root, `${name}.js`), ts.transpileModule(source, { compilerOptions }).outputText);
  }
  writeFileSync(join(root, 'package.json'), '{"type":"module"}');
  writeFileSync(join(root, 'stepped.mjs'), STEPPED);
});
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(root, { recursive: true, force: true });
});

/** What a process leaves that swept away the lock of a dead one, and died before the operation of this name on the lock itself. */
async function leftBehind(): Promise<string> {
  const folder = join(root, 'left');
  mkdirSync(folder);
  writeFileSync(join(folder, 'lock'), '{"pid":4194304,"ticks":"1"}');
  const sweeper = await Stepped.start();
  let next = await sweeper.tell(join(folder, 'lock'));
  // The broom is a second file beside the lock and the sweeper's own.
  while (readdirSync(folder).length < 3 && !next.startsWith('done')) next = await sweeper.tell();
  expect(next.startsWith('done')).toBe(false);
  await sweeper.kill();
  expect(readdirSync(folder)).toHaveLength(3);
  return folder;
}

it('of several that find the lock and the broom of dead processes, at most one holds the lock, in whatever order they go on', async () => {
  const left = await leftBehind();
  const contenders = await Promise.all([Stepped.start(), Stepped.start(), Stepped.start()]);
  let seed = 7;
  const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
  let won = 0;
  for (let schedule = 0; schedule < SCHEDULES; schedule++) {
    const folder = join(root, `${schedule}`);
    cpSync(left, folder, { recursive: true });
    const going = new Map<Stepped, string>();
    for (const each of contenders) going.set(each, await each.tell(join(folder, 'lock')));
    const order: string[] = [];
    let holders = 0;
    // One goes on for a while, then another.
    while (going.size > 0) {
      const each = [...going.keys()][random(going.size)]!;
      for (let steps = 1 + random(4); steps > 0 && going.has(each); steps--) {
        order.push(`${contenders.indexOf(each)} ${going.get(each)}`);
        const next = await each.tell();
        if (next.startsWith('done')) going.delete(each);
        else going.set(each, next);
        if (next === 'done holding') holders++;
      }
    }
    expect(holders, order.join(', ')).toBeLessThanOrEqual(1);
    won += holders;
    rmSync(folder, { recursive: true });
  }
  expect(won).toBeGreaterThan(SCHEDULES / 2);
});
