/** `paceline checkpoints`, `weights` and `open`: what a run has left behind, and where to see it. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, rmSync } from 'node:fs';
import { link, open as openFile, rename, rm } from 'node:fs/promises';
import { EXIT } from '@paceline/runtime/exit-codes';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import { cleanUpOnInterrupt, type Act, type CommandContext } from '../command.js';
import { dashboardUrl } from '../show-run.js';
import { clean } from '../terminal/clean.js';
import { ago, bytes, decimals } from '../terminal/format.js';
import { printTable } from '../terminal/print-table.js';
import { noRun, RUN_ARGUMENT, shortId, whichRun } from '../which-run.js';

/** The first eight bytes of a safetensors file say how long its header is. */
const LENGTH_BYTES = 8;

export function addResultCommands(program: Command, act: Act): void {
  program
    .command('checkpoints')
    .description('Lists the checkpoints of a run, newest first.')
    .argument('<run>', RUN_ARGUMENT)
    .action(act(checkpoints));
  program
    .command('weights')
    .description(
      'Downloads the trained weights of a run that has succeeded, as a safetensors file, and compares them with the SHA-256 of the run.\n' +
        'The file appears when it is complete.',
    )
    .argument('<run>', RUN_ARGUMENT)
    .option('-o, --output <file>', 'where to write it (default: NAME-ID.safetensors here, with the last 8 characters of the id)')
    .option('--force', 'replace an existing file')
    .action(act(weights));
  program
    .command('open')
    .description('Opens the dashboard in the browser, at a run or at the list of runs. Without a browser it prints the address only.')
    .argument('[run]', RUN_ARGUMENT)
    .action(act(open));
}

async function checkpoints({ terminal, connect }: CommandContext, _command: Command, reference: string): Promise<number> {
  const client = connect();
  const id = await whichRun(client, reference);
  const found = await client.checkpoints(id);
  if (terminal.json) {
    terminal.document({ checkpoints: found });
    return EXIT.ok;
  }
  if (found.length === 0) {
    terminal.note('The run has no checkpoint yet.');
    return EXIT.ok;
  }
  const columns = [
    { title: 'ROUND', align: 'right' },
    { title: 'ATTEMPT', align: 'right' },
    { title: 'STATE' },
    { title: 'REASON', drop: 1 },
    { title: 'LOSS', align: 'right', drop: 2 },
    { title: 'SIZE', align: 'right', drop: 3 },
    { title: 'CREATED', drop: 4 },
    { title: 'SHA256', drop: 5, least: 12 },
  ] as const;
  const now = Date.now();
  const rows = found.map((checkpoint) => [
    `${checkpoint.round}/${checkpoint.totalRounds}`,
    String(checkpoint.attempt),
    clean(checkpoint.state, 20),
    clean(checkpoint.reason, 20),
    checkpoint.loss === null ? '–' : `${decimals(checkpoint.loss, 4)} train`,
    bytes(checkpoint.bytes),
    ago(checkpoint.createdAt, now),
    clean(checkpoint.sha256, 64),
  ]);
  printTable(terminal, columns, rows);
  const usable = found.find(({ state }) => state === 'USABLE');
  if (usable) terminal.note(`Begin a new run with one: ${terminal.program} train --resume-from ${shortId(id)}@${usable.round}`);
  return EXIT.ok;
}

async function weights({ terminal, connect }: CommandContext, command: Command, reference: string): Promise<number> {
  const { output, force } = command.opts<{ output?: string; force?: boolean }>();
  const client = connect();
  const id = await whichRun(client, reference);
  const run = await client.runProgress(id);
  if (!run) throw noRun(id);
  if (!run.result)
    throw new UserError('NO_WEIGHTS', `The run is ${run.status}: weights are written when a run succeeds.`, {
      hint: 'What it has so far is in its checkpoints: `paceline checkpoints` lists them.',
      exit: 'unsuccessful',
    });
  const file = output ?? `${run.name.replace(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'run'}-${shortId(id)}.safetensors`;
  const { body } = await client.weights(id);
  const written = await writeWeights(file, body, run.result.weightsSha256, force === true);
  if (terminal.json) terminal.document({ file, bytes: written, weightsSha256: run.result.weightsSha256 });
  terminal.print(`${file}  ${bytes(written)}  sha256 of the weights ${run.result.weightsSha256}`);
  return EXIT.ok;
}

/** Writes beside the name and renames. The hash is that of the tensors, behind the header, which names the run. @throws UserError WEIGHTS_* */
export async function writeWeights(file: string, body: AsyncIterable<Uint8Array>, sha256: string, mayReplace: boolean): Promise<number> {
  const partial = `${file}.${process.pid}.partial`;
  const hash = createHash('sha256');
  let written = 0;
  let dataFrom = Number.POSITIVE_INFINITY;
  const start = Buffer.alloc(LENGTH_BYTES);
  if (!mayReplace && existsSync(file)) throw unusable(file, Object.assign(new Error(), { code: 'EEXIST' }));
  const out = await openFile(partial, 'wx').catch((error: unknown) => Promise.reject(unusable(file, error)));
  const interrupt = cleanUpOnInterrupt(() => rmSync(partial, { force: true }));
  try {
    for await (const chunk of body) {
      if (written < LENGTH_BYTES) start.set(chunk.subarray(0, LENGTH_BYTES - written), written);
      if (written + chunk.length >= LENGTH_BYTES) dataFrom = LENGTH_BYTES + Number(start.readBigUInt64LE(0));
      if (written + chunk.length > dataFrom) hash.update(chunk.subarray(Math.max(0, dataFrom - written)));
      await out.writeFile(chunk);
      written += chunk.length;
    }
    const found = hash.digest('hex');
    if (found !== sha256)
      throw new UserError('WEIGHTS_DIFFER', `The download has the SHA-256 ${found}, and the run says ${sha256}; nothing was written.`, {
        hint: 'Try again. If this repeats, the file on the host of the api is damaged.',
        exit: 'unsuccessful',
      });
    await out.sync();
    await (mayReplace ? rename(partial, file) : placed(partial, file));
    return written;
  } finally {
    interrupt.dispose();
    await out.close();
    await rm(partial, { force: true });
  }
}

/** A file that has come to be there meanwhile is left alone. @throws UserError WEIGHTS_UNUSABLE_FILE */
async function placed(partial: string, file: string): Promise<void> {
  try {
    await link(partial, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw unusable(file, error);
    await rename(partial, file); // a file system without links
  }
}

function unusable(file: string, error: unknown): UserError {
  const { code } = error as NodeJS.ErrnoException;
  const why = code === 'EEXIST' ? 'is there already' : `cannot be written (${code ?? String(error)})`;
  return new UserError('WEIGHTS_UNUSABLE_FILE', `${file} ${why}.`, {
    hint: code === 'EEXIST' ? 'Choose another one with --output, or replace it with --force.' : 'Choose another one with --output.',
    exit: 'usage',
    cause: error,
  });
}

async function open({ terminal, connect }: CommandContext, _command: Command, reference: string | undefined): Promise<number> {
  const client = connect();
  const url = dashboardUrl(client.url, reference === undefined ? undefined : await whichRun(client, reference));
  if (terminal.json) terminal.document({ url });
  terminal.print(url);
  if (terminal.stdout.isTTY && !terminal.json) openBrowser(url, terminal.env);
  return EXIT.ok;
}

/** On Linux only where there is a display: a machine that is reached by ssh has none. What does not open was printed. */
function openBrowser(url: string, env: NodeJS.ProcessEnv): void {
  const [program, ...args] =
    process.platform === 'darwin' ? ['open', url] : process.platform === 'win32' ? ['explorer', url] : ['xdg-open', url];
  if (program === 'xdg-open' && !env['DISPLAY'] && !env['WAYLAND_DISPLAY']) return;
  const child = spawn(program!, args, { stdio: 'ignore', detached: true });
  child.on('error', () => undefined); // there is no such program; the address was printed
  child.unref();
}
