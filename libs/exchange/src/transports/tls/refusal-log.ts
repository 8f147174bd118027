/** Logs who was refused over TLS: a line at once, and then at most one in ten seconds with what came in between, however many knock. */
import type { ProtocolError } from '@paceline/protocol';

const QUIET_MS = 10_000;

export function refusalLog(
  warn: (fields: object, message: string) => void,
  now: () => number,
): (remote: string, error: ProtocolError, by: 'this side' | 'the peer') => void {
  let lastMs = -Infinity;
  let unsaid = 0;
  return (remote, { code, detail }, by) => {
    if (now() - lastMs < QUIET_MS) {
      unsaid++;
      return;
    }
    lastMs = now();
    warn({ remote, code, refusedBy: by, unsaid }, `a connection of the data plane was refused: ${detail}`);
    unsaid = 0;
  };
}
