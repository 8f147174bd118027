/**
 * A line at the bottom that is drawn again and again, with finished lines above it. On something that is no terminal (a log file, CI)
 * there is nothing to draw over: the line is printed anew, at most once a second and only when it has changed.
 */
import type { Stream } from './terminal.js';

const PLAIN_EVERY_MS = 1000;
const DRAW_EVERY_MS = 80;

export interface LiveLine {
  /** Shows this text; called as often as one likes. */
  update(text: string): void;
  /** Prints a line that stays, above the live one. */
  above(line: string): void;
  /** Ends it; the last text stays visible when `keep`. */
  finish(keep?: boolean): void;
}

export function createLiveLine(stream: Stream, now: () => number = () => performance.now()): LiveLine {
  return stream.isTTY ? drawnLine(stream, now) : plainLines(stream, now);
}

function drawnLine(stream: Stream, now: () => number): LiveLine {
  const CLEAR = '\r\u001b[2K';
  let shown = '';
  let drawn = '';
  let drawnAt = -Infinity;
  let hidden = false;
  /** A process that ends in the middle, as a second Ctrl-C has it, leaves a cursor too. */
  const onExit = (): void => finish();
  const draw = (text: string): void => {
    // Hiding the cursor keeps it from flickering at the end of the line.
    stream.write(`${hidden ? '' : '\u001b[?25l'}${CLEAR}${text}`);
    if (!hidden) process.once('exit', onExit);
    hidden = true;
    drawn = text;
    drawnAt = now();
  };
  const finish = (keep = false): void => {
    if (!hidden) return;
    process.off('exit', onExit);
    stream.write(keep && shown ? `${CLEAR}${shown}\n\u001b[?25h` : `${CLEAR}\u001b[?25h`);
    hidden = false;
    shown = '';
  };
  return {
    finish,
    update(text) {
      shown = text;
      if (text !== drawn && now() - drawnAt >= DRAW_EVERY_MS) draw(text);
    },
    above(line) {
      stream.write(`${hidden ? CLEAR : ''}${line}\n`);
      if (shown) draw(shown);
    },
  };
}

function plainLines(stream: Stream, now: () => number): LiveLine {
  let printed = '';
  let printedAt = -Infinity;
  let latest = '';
  const print = (text: string): void => {
    stream.write(`${text}\n`);
    printed = text;
    printedAt = now();
  };
  return {
    update(text) {
      latest = text;
      if (text !== printed && now() - printedAt >= PLAIN_EVERY_MS) print(text);
    },
    above: (line) => stream.write(`${line}\n`),
    finish(keep = false) {
      if (keep && latest !== '' && latest !== printed) print(latest);
      latest = '';
    },
  };
}
