/**
 * Where a command prints. Results go to stdout; progress, notes and errors to stderr, so that `paceline runs | grep` and `--json | jq`
 * see results only. Colours only on a terminal that wants them (NO_COLOR, TERM=dumb, FORCE_COLOR).
 */
import { writeSync } from 'node:fs';
import { asTyped, programName } from './pasteable.js';

export interface Stream {
  readonly isTTY: boolean;
  /** Width of the terminal; 80 where it is not known. */
  columns(): number;
  write(text: string): void;
}

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan';
const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
};

export interface Terminal {
  readonly stdout: Stream;
  readonly stderr: Stream;
  readonly env: NodeJS.ProcessEnv;
  /** Box drawing and ellipsis can be shown. */
  readonly unicode: boolean;
  /** One JSON document on stdout instead of text. */
  readonly json: boolean;
  /** Show stacks of errors. */
  readonly debug: boolean;
  /** A line of the result. */
  print(line?: string): void;
  /** A line for people beside the result. */
  note(line?: string): void;
  /** The one JSON document. */
  document(value: unknown): void;
  style(style: Style, text: string, stream?: 'stdout' | 'stderr'): string;
  /** What is typed before a command here, for hints: `paceline`, or `npx paceline`. */
  readonly program: string;
  /** A text of the api or of a library, with the commands in it as they are typed here. */
  typed(text: string): string;
}

export interface TerminalOptions {
  readonly json: boolean;
  readonly debug: boolean;
}

export function createTerminal(
  options: TerminalOptions,
  env: NodeJS.ProcessEnv = process.env,
  stdout: Stream = processStream(process.stdout),
  stderr: Stream = processStream(process.stderr),
): Terminal {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  let program: string | undefined;
  const terminal: Terminal = {
    get program() {
      return (program ??= programName(env));
    },
    typed: (text) => (text.includes('paceline ') ? asTyped(text, terminal.program) : text),
    stdout,
    stderr,
    env,
    ...options,
    // Without a locale most terminals of today still show UTF-8; only one that says otherwise gets ASCII.
    unicode:
      env['TERM'] !== 'linux' && (locale === '' || /utf-?8/i.test(locale) || (!/^(C|POSIX)$/.test(locale) && !/8859|ascii/i.test(locale))),
    print: (line = '') => {
      if (!options.json) stdout.write(`${line}\n`);
    },
    note: (line = '') => stderr.write(`${line}\n`),
    document: (value) => stdout.write(`${JSON.stringify(value, undefined, stdout.isTTY ? 2 : undefined)}\n`),
    style: (style, text, stream = 'stdout') => {
      if (!wantsColour(terminal[stream], env)) return text;
      const [on, off] = CODES[style];
      return `\u001b[${on}m${text}\u001b[${off}m`;
    },
  };
  return terminal;
}

function wantsColour(stream: Stream, env: NodeJS.ProcessEnv): boolean {
  if (env['NO_COLOR']) return false;
  if (env['FORCE_COLOR']) return env['FORCE_COLOR'] !== '0';
  return stream.isTTY && env['TERM'] !== 'dumb';
}

function processStream(stream: NodeJS.WriteStream & { readonly fd: number }): Stream {
  let closed = false;
  // `paceline runs | head`: the reader has what it wanted.
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    closed = true;
  });
  return {
    isTTY: stream.isTTY === true,
    columns: () => stream.columns || 80,
    write: (text) => {
      if (closed) return;
      // Pipes are written at once, so that an exit right after loses nothing; EAGAIN means the reader is slow.
      if (stream.isTTY) stream.write(text);
      else writeAll(stream.fd, text, () => (closed = true));
    },
  };
}

const pause = new Int32Array(new SharedArrayBuffer(4));

function writeAll(descriptor: number, text: string, onClosed: () => void): void {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(descriptor, rest));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EPIPE') return onClosed();
      if (code !== 'EAGAIN') throw error;
      Atomics.wait(pause, 0, 0, 5);
    }
  }
}
