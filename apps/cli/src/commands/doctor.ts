/** `paceline doctor`: everything that a run needs, checked one by one, with what to do about what is missing. Starts and changes nothing. */
import type { Command } from 'commander';
import { EXIT } from '@paceline/runtime';
import type { CommandContext } from '../command.js';
import { runChecks, type CheckResult } from '../checks.js';
import { cleanLines } from '../terminal/clean.js';
import type { Style, Terminal } from '../terminal/terminal.js';

type Act = (
  action: (context: CommandContext, command: Command, argument: string) => Promise<number>,
) => (...args: unknown[]) => Promise<void>;

const MARKS: Readonly<Record<CheckResult['status'], readonly [string, Style]>> = {
  ok: ['ok', 'green'],
  warning: ['warning', 'yellow'],
  failed: ['failed', 'red'],
  skipped: ['skipped', 'dim'],
};

export function addDoctor(program: Command, act: Act): void {
  program
    .command('doctor')
    .description(
      'Checks Node, the build, PostgreSQL and Redis (which ones would be taken, and why), the port of the api, the engine, the dataset, folders and permissions, ' +
        'and whether the configured api answers and accepts the key. Starts and changes nothing.',
    )
    .action(act(({ terminal, env }) => doctor(terminal, env)));
}

async function doctor(terminal: Terminal, env: NodeJS.ProcessEnv): Promise<number> {
  const results: CheckResult[] = [];
  for await (const result of runChecks(env)) {
    results.push(result);
    if (terminal.json) continue;
    const [mark, style] = MARKS[result.status];
    terminal.print(
      `${terminal.style(style, mark.padEnd(8))} ${terminal.style('bold', result.name.padEnd(11))} ${indent(cleanLines(result.message))}`,
    );
    if (result.hint && result.status !== 'ok')
      terminal.print(`${' '.repeat(21)}${terminal.style('cyan', indent(cleanLines(result.hint)))}`);
  }
  const failed = results.filter((result) => result.status === 'failed');
  if (terminal.json) terminal.document({ ok: failed.length === 0, checks: results });
  terminal.print(
    failed.length === 0
      ? terminal.style('green', 'Everything that a run needs is here.')
      : terminal.style('red', `${failed.length} of ${results.length} checks failed.`),
  );
  return failed.length === 0 ? EXIT.ok : EXIT.unsuccessful;
}

const indent = (text: string): string => text.split('\n').join(`\n${' '.repeat(21)}`);
