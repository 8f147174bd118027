/** Answers that are streams hold a file, memory and a turn: one whose socket takes nothing for a while is ended. A slow reader is not. */
import type { ServerResponse } from 'node:http';

const STALLED_MS = 60_000;

/** The socket looks at what the system has taken; a timeout while nothing waits to be sent is that of a slow source. */
export function endWhenStalled(answer: ServerResponse, stalledMs = STALLED_MS): void {
  answer.setTimeout(stalledMs, () => {
    if (answer.writableLength > 0 || answer.writableNeedDrain) answer.socket?.destroy();
  });
}

/** Once the answer is sent, or its client is gone: also when it went before. */
export function whenOver(answer: ServerResponse, act: () => void): void {
  if (answer.closed || answer.destroyed) act();
  else answer.once('close', act);
}
