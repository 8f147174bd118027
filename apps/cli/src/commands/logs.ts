/** `paceline logs`: the log files of the local stack, and the end of one. */
import { closeSync, existsSync, fstatSync, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT } from '@paceline/runtime/exit-codes';
import { userDirectories } from '@paceline/runtime/user-directories';
import { UserError } from '@paceline/runtime/user-error';
import type { Command } from 'commander';
import { wholeNumber, type Act, type CommandContext } from '../command.js';
import { suggestion } from '../did-you-mean.js';
import { cleanLines } from '../terminal/clean.js';
import { ago, bytes, table } from '../terminal/format.js';

const MAX_LINES = 10_000;
const MAX_READ_BYTES = 4 * 1024 * 1024;

export function addLogs(program: Command, act: Act): void {
  program
    .command('logs')
    .description('Lists the log files of the local stack (`paceline up`); with the name of one it prints its end.')
    .argument('[process]', 'whose log, for example api or worker-1')
    .option('-n, --lines <n>', 'how many lines', wholeNumber('--lines', 1, MAX_LINES), 50)
    .action(act(logs));
}

async function logs({ terminal, env }: CommandContext, command: Command, name: string | undefined): Promise<number> {
  const folder = join(userDirectories(env).data, 'logs');
  const names = existsSync(folder)
    ? readdirSync(folder)
        .filter((file) => file.endsWith('.log'))
        .map((file) => file.slice(0, -'.log'.length))
        .sort()
    : [];
  const fileOf = (each: string): string => join(folder, `${each}.log`);
  if (name === undefined) {
    const files = names.map((each) => ({ name: each, file: fileOf(each), ...pick(fileOf(each)) }));
    if (terminal.json) terminal.document({ logs: files });
    else if (files.length === 0)
      terminal.note(`There are no logs in ${folder}. \`${terminal.program} up\` starts a local stack and writes them.`);
    else {
      const rows = files.map((log) => [log.name, bytes(log.bytes), ago(log.changedAt, Date.now()), log.file]);
      const columns = [{ title: 'PROCESS' }, { title: 'SIZE', align: 'right' }, { title: 'CHANGED' }, { title: 'FILE' }] as const;
      for (const line of table(columns, rows, { width: 10_000, paintTitle: (text) => terminal.style('bold', text) })) terminal.print(line);
    }
    return EXIT.ok;
  }
  if (!names.includes(name)) {
    throw new UserError('NOT_FOUND', `There is no log of ${JSON.stringify(name.slice(0, 40))} in ${folder}${suggestion(name, names)}`, {
      hint: names.length === 0 ? '`paceline up` starts a local stack and writes logs.' : `There are ${names.join(', ')}.`,
      exit: 'notFound',
    });
  }
  const lines = lastLines(fileOf(name), command.opts<{ lines: number }>().lines);
  if (terminal.json) terminal.document({ file: fileOf(name), lines });
  for (const line of lines) terminal.print(cleanLines(line));
  terminal.note(`Follow it with: tail -f ${fileOf(name)}`);
  return EXIT.ok;
}

function pick(file: string): { bytes: number; changedAt: string } {
  const { size, mtime } = statSync(file);
  return { bytes: size, changedAt: mtime.toISOString() };
}

function lastLines(file: string, lines: number): string[] {
  const descriptor = openSync(file, 'r');
  try {
    const { size } = fstatSync(descriptor);
    const from = Math.max(0, size - MAX_READ_BYTES);
    const buffer = Buffer.alloc(size - from);
    const read = readSync(descriptor, buffer, 0, buffer.length, from);
    const whole = buffer.toString('utf8', 0, read).split('\n');
    if (from > 0) whole.shift(); // cut
    if (whole.at(-1) === '') whole.pop();
    return whole.slice(-lines);
  } finally {
    closeSync(descriptor);
  }
}
