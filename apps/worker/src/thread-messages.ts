/** How a compute thread takes messages: in order, and synchronously. What it does is recorded as spans while somebody asks for a trace, and what fails is said. */
import type { MessagePort } from 'node:worker_threads';
import { spans } from '@paceline/exchange';
import type { FromCompute, ToCompute } from './compute-protocol.js';

const MOST_CODE_CHARACTERS = 100;

export interface ThreadMessages {
  handle(message: ToCompute): void;
  send(message: FromCompute): void;
  /** Nobody wants to hear of anything any more. */
  isStopping?(): boolean;
}

function roundOf(message: ToCompute): number {
  if (message.kind === 'step') return message.round;
  return message.kind === 'item' ? Math.max(message.item.round, 0) : 0;
}

export function takeMessages(port: MessagePort, { handle, send, isStopping }: ThreadMessages): void {
  let restsSinceMs = 0;
  port.on('message', (message: ToCompute) => {
    if (message.kind === 'step') spans.mark(message.round);
    spans.add('wait', restsSinceMs);
    const sinceMs = spans.now();
    try {
      handle(message);
      if (message.kind === 'step') spans.add('step', sinceMs);
      restsSinceMs = spans.now();
    } catch (error) {
      if (isStopping?.()) return;
      const { name, message: why, code } = error as Error & { readonly code?: unknown };
      const told = (typeof code === 'string' ? code : name).slice(0, MOST_CODE_CHARACTERS);
      send({ kind: 'failed', code: told, message: why, round: roundOf(message), replica: -1 });
    }
  });
}
