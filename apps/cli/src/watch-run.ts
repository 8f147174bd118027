/**
 * Shows a run until it is over: a progress line that is drawn again and again, with its events above. Two sources side by side:
 *
 *  - the subscription of events, which continues after the last one when the connection breaks;
 *  - the progress, asked for a few times a second, which also decides that the run is over.
 *
 * An api that is away is no reason to stop: training goes on without it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { FINAL_STATUSES, PacelineApiError, type PacelineClient, type RunEvent, type RunSummary } from '@paceline/client';
import { EXIT } from '@paceline/runtime/exit-codes';
import { interruptSignal } from './command.js';
import { RunFailure } from './failure.js';
import { measurePairs, measuresText } from './measures.js';
import { paintStatus, printResult } from './show-run.js';
import { clean } from './terminal/clean.js';
import { shortTime, widthOf } from './terminal/format.js';
import { createLiveLine, type LiveLine } from './terminal/live-line.js';
import { progressLine } from './terminal/progress-line.js';
import type { Terminal } from './terminal/terminal.js';
import { shortId } from './which-run.js';

const POLL_MS = 250;
const POLL_PLAIN_MS = 1000;
/** After this long without an answer watching stops with the error. */
const AWAY_DEADLINE_MS = 10 * 60_000;
const LAST_EVENTS_DEADLINE_MS = 3000;
/** Events that say nothing to somebody who looks at the progress line. */
const QUIET_EVENTS: ReadonlySet<string> = new Set(['view.changed', 'frame.refused', 'journal.gap', 'evaluation.started']);

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** Events up to this number are not shown again. */
  readonly afterSeq?: number;
  /** Watching ends with this state of a run too, not only when it is over. */
  readonly until?: ((run: RunSummary) => boolean) | undefined;
}

/** Watches a run from now on, until it is over or Ctrl-C detaches. @returns the exit code */
export async function watchFrom(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  until?: (run: RunSummary) => boolean,
): Promise<number> {
  const [newest] = (await client.events(runId, { last: 1 })).nodes;
  const interrupt = interruptSignal();
  try {
    return await finishWatching(client, runId, terminal, interrupt.signal, newest?.seq ?? 0, until);
  } finally {
    interrupt.dispose();
  }
}

/** Watches a run to its end and prints the result. @returns the exit code: 0 only for SUCCEEDED, and for what `until` waited for */
export async function finishWatching(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  signal: AbortSignal,
  afterSeq: number,
  until?: (run: RunSummary) => boolean,
): Promise<number> {
  const watched = await watchRun(client, runId, terminal, { signal, afterSeq, until }).catch((error: unknown) => {
    throw new RunFailure(runId, error);
  });
  if (!watched) {
    if (terminal.json) terminal.document({ runId, detached: true });
    terminal.note(`Detached; the run goes on. Return to it with: ${terminal.program} run ${shortId(runId)} --watch`);
    return EXIT.interrupted;
  }
  const over = watched.run;
  if (terminal.json) terminal.document(over);
  terminal.print(`${paintStatus(over.status, terminal)}${over.statusReason ? `  ${terminal.typed(clean(over.statusReason, 1000))}` : ''}`);
  if (!terminal.json) {
    // Only who validates has more to tell than the summary.
    const course = over.progress.validation && (await client.run(runId))?.course;
    printResult(over, terminal, { apiUrl: client.url, course });
  }
  return watched.isDone ? EXIT.ok : EXIT.unsuccessful;
}

export interface Watched {
  readonly run: RunSummary;
  /** False for one that was cancelled or failed, and for an extension that was: the run keeps its result then, and is SUCCEEDED. */
  readonly isDone: boolean;
}

/** @returns the run when it is over, undefined when the signal came first */
export async function watchRun(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  { signal, afterSeq = 0, until }: WatchOptions,
): Promise<Watched | undefined> {
  const live = createLiveLine(terminal.stderr);
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const events = showEvents(client, runId, terminal, live, both, afterSeq);
  try {
    const over = await pollUntilOver(client, runId, terminal, live, both, until);
    // The last events are waited for, but not for ever; an abort ends the wait.
    if (over) await Promise.race([events, sleep(LAST_EVENTS_DEADLINE_MS, undefined, { signal: both, ref: false }).catch(() => undefined)]);
    return over;
  } finally {
    stop.abort();
    live.finish();
    await events;
  }
}

async function pollUntilOver(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  live: LiveLine,
  signal: AbortSignal,
  until: WatchOptions['until'],
): Promise<Watched | undefined> {
  let lastAnswerAt = performance.now();
  let askedRounds = 0;
  let validatedRound: number | undefined;
  while (!signal.aborted) {
    try {
      const run = await client.runProgress(runId, { signal });
      lastAnswerAt = performance.now();
      if (!run) throw new PacelineApiError('NOT_FOUND', `There is no run ${clean(runId, 60)}.`);
      const { totalRounds } = run.progress;
      if (FINAL_STATUSES.has(run.status) || until?.(run) === true)
        return { run, isDone: (run.status === 'SUCCEEDED' && totalRounds >= askedRounds) || until?.(run) === true };
      askedRounds = Math.max(askedRounds, totalRounds);
      const { validation } = run.progress;
      const width = terminal.stderr.isTTY ? terminal.stderr.columns() - 1 : 120;
      // What was measured before anybody watched is in the history of the run.
      if (validation && validatedRound !== undefined && validation.round > validatedRound)
        for (const line of validationLines(run, width)) live.above(line);
      validatedRound = validation?.round ?? validatedRound ?? -1;
      live.update(progressLine(run, { width, unicode: terminal.unicode, typed: terminal.typed }));
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!(error instanceof PacelineApiError) || !error.isTemporary || performance.now() - lastAnswerAt > AWAY_DEADLINE_MS) throw error;
      live.update(`the api is away (${error.code}); the run goes on, trying again`);
    }
    await sleep(terminal.stderr.isTTY ? POLL_MS : POLL_PLAIN_MS, undefined, { signal }).catch(() => undefined); // an abort ends the loop
  }
  return undefined;
}

/** Never throws: when events cannot be had, the progress says why. */
async function showEvents(
  client: PacelineClient,
  runId: string,
  terminal: Terminal,
  live: LiveLine,
  signal: AbortSignal,
  afterSeq: number,
): Promise<void> {
  try {
    for await (const event of client.runEvents(runId, { afterSeq, signal, reconnectForMs: AWAY_DEADLINE_MS })) {
      if (!QUIET_EVENTS.has(event.type)) live.above(eventLine(event, terminal));
    }
  } catch (error) {
    if (!(error instanceof PacelineApiError)) throw error;
    live.above(terminal.style('yellow', `events are not shown: ${clean(error.message)}`, 'stderr'));
  }
}

/**
 * As Keras has it after an epoch: `round 235  loss 0.3123  accuracy 91.04 %  val_loss 0.2811  val_accuracy 92.20 %`. Where that has no room, a line with the
 * round, and below it each metric with its validation beside it.
 */
export function validationLines({ progress: { values, validation } }: Pick<RunSummary, 'progress'>, width: number): string[] {
  if (!validation) return [];
  const round = `round ${validation.round + 1}`;
  const line = `${round}  ${measuresText(values)}  ${measuresText(validation.values, 'val_')}`;
  if (widthOf(line) <= width) return [line];
  return [round, ...measurePairs(values, validation.values, width - 2).map((each) => `  ${each}`)];
}

/** A time of today without its date. */
export function eventLine(event: RunEvent, terminal: Terminal, nowMs: number = Date.now()): string {
  return `${terminal.style('dim', `${shortTime(event.at, nowMs)} `, 'stderr')}${terminal.typed(clean(event.message))}`;
}
