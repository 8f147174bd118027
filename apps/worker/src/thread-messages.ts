/**
 * How a compute thread takes messages: in order, and synchronously. What it does is recorded as spans while somebody asks for a trace, and what fails is said.
 *
 * A thread with a bell stays by it: it sleeps on a word in shared memory until the main thread rings, and takes messages without a turn of its event loop. Where there
 * is none, it does what can be done ahead. Four times a second its event loop has a turn, for what else waits there.
 */
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { spans } from '@paceline/exchange';
import type { FromCompute, ToCompute } from './compute-protocol.js';

const MOST_CODE_CHARACTERS = 100;
/** Between two turns of the event loop of a thread that stays by its bell, at most. */
const LOOP_EVERY_MS = 250;

/** A word in shared memory that changes whenever a thread has something to do. */
export interface Bell {
  readonly cells: Int32Array;
  readonly cell: number;
}

/** Wakes the thread that stays by it. Called after a message was posted, or when there is something to do ahead. */
export function ring({ cells, cell }: Bell): void {
  Atomics.add(cells, cell, 1);
  Atomics.notify(cells, cell);
}

export interface ThreadMessages {
  handle(message: ToCompute): void;
  send(message: FromCompute): void;
  /** Nobody wants to hear of anything any more. */
  isStopping?(): boolean;
  /** Left out: each message is taken by the event loop. */
  readonly bell?: Bell | undefined;
  /** Does a small part of what can be done before the next message. It is not called again when it has failed. @returns false when there is nothing */
  readonly ahead?: (() => boolean) | undefined;
}

function roundOf(message: ToCompute): number {
  if (message.kind === 'step') return message.round;
  return message.kind === 'item' ? Math.max(message.item.round, 0) : 0;
}

export function takeMessages(port: MessagePort, { handle, send, isStopping, bell, ahead }: ThreadMessages): void {
  let restsSinceMs = 0;
  let isOver = false;
  const failed = (error: unknown, round: number): void => {
    if (isStopping?.()) return;
    const { name, message: why, code } = error as Error & { readonly code?: unknown };
    const told = (typeof code === 'string' ? code : name).slice(0, MOST_CODE_CHARACTERS);
    send({ kind: 'failed', code: told, message: why, round, replica: -1 });
  };
  const take = (message: ToCompute): void => {
    if (message.kind === 'step') spans.mark(message.round);
    spans.add('wait', restsSinceMs);
    const sinceMs = spans.now();
    isOver = message.kind === 'stop';
    try {
      handle(message);
      if (message.kind === 'step') spans.add('step', sinceMs);
      restsSinceMs = spans.now();
    } catch (error) {
      failed(error, roundOf(message));
    }
  };
  let hasFailedAhead = false;
  const tryAhead = (): boolean => {
    try {
      return !hasFailedAhead && ahead?.() === true;
    } catch (error) {
      hasFailedAhead = true;
      failed(error, 0);
      return false;
    }
  };
  port.on('message', take);
  if (bell) stay(port, bell, { take, isOver: () => isOver, ahead: tryAhead });
}

interface Stay {
  take(message: ToCompute): void;
  /** It was told to stop. */
  isOver(): boolean;
  ahead(): boolean;
}

function stay(port: MessagePort, { cells, cell }: Bell, { take, isOver, ahead }: Stay): void {
  const turn = (): void => {
    const untilMs = performance.now() + LOOP_EVERY_MS;
    for (let leftMs = LOOP_EVERY_MS; leftMs > 0 && !isOver(); leftMs = untilMs - performance.now()) {
      const rung = Atomics.load(cells, cell);
      const next = receiveMessageOnPort(port) as { readonly message: ToCompute } | undefined;
      if (next) take(next.message);
      else if (!ahead()) Atomics.wait(cells, cell, rung, leftMs);
    }
    if (!isOver()) setImmediate(turn);
  };
  setImmediate(turn);
}
