/**
 * Commands in hints are to work when they are pasted. Started by npx or by a script of npm, `paceline` is often not on the PATH of the shell:
 * hints then say `npx paceline`. Texts of the api and of libraries say `paceline ...` and are rewritten where they are printed.
 */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** What is typed before the name of a command. */
export function programName(env: NodeJS.ProcessEnv): string {
  // npm puts node_modules/.bin on the PATH of what it starts, so the PATH says nothing then.
  if (env['npm_command'] !== undefined) return 'npx paceline';
  const folders = (env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return folders.some((folder) => isProgram(join(folder, process.platform === 'win32' ? 'paceline.cmd' : 'paceline')))
    ? 'paceline'
    : 'npx paceline';
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false; // most folders of a PATH do not hold it
  }
}

/** Names of all commands; a test compares them with the command tree. */
export const COMMAND_NAMES = [
  ...['train', 'runs', 'run', 'metrics', 'checkpoints', 'weights', 'export', 'evaluate', 'predict', 'trace', 'open'],
  ...['pause', 'resume', 'scale', 'extend', 'cancel'],
  ...['data', 'alias', 'team', 'key'],
  ...['demo', 'up', 'down', 'logs', 'workers', 'server', 'engine', 'doctor', 'verify', 'generate', 'model'],
] as const;

const COMMAND = new RegExp(`(?<![\\w./@-])(?:npx )?paceline (?=(?:${COMMAND_NAMES.join('|')}|help)\\b|--)`, 'g');

/** The text with its commands as they are typed here. */
export function asTyped(text: string, program: string): string {
  return text.replace(COMMAND, `${program} `);
}
