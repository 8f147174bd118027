/**
 * Bodies of uploads as they come: of the declared size and hash, and not too slow. While a body comes it holds a turn, so one that trickles is
 * given up. Only the time in which the api waits for the sender counts, not that in which the store takes the bytes.
 */
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { Fault } from '../fault.js';

export interface UploadPace {
  /** A body that is silent for so long is given up. */
  readonly silentMs: number;
  /** Over all of the body, after a first `silentMs`. */
  readonly leastBytesPerSecond: number;
  readonly deadlineMs: number;
}

/** One of eight uploads at once over 1 Mbit/s is just quick enough. An upload that is older than a day could be swept. */
const PACE: UploadPace = { silentMs: 30_000, leastBytesPerSecond: 8_192, deadlineMs: 12 * 3_600_000 };

/** @throws Fault BAD_REQUEST, TOO_LARGE */
export function declaredBytes(bytes: number | undefined, most: number): number {
  if (bytes === undefined || !Number.isSafeInteger(bytes) || bytes < 1)
    throw new Fault('BAD_REQUEST', 'Content-Length is needed, and must be at least 1.');
  if (bytes > most) throw new Fault('TOO_LARGE', `The body has ${bytes} bytes; at most ${most} are taken.`);
  return bytes;
}

/** The bytes as they come, which end well only when their number, and their hash where one is given, are right. */
export async function* checked(body: Readable, bytes: number, sha256?: string, pace = PACE): AsyncGenerator<Uint8Array, void, void> {
  const hash = createHash('sha256');
  const begunMs = performance.now();
  let [read, waitedMs, askedMs] = [0, 0, 0];
  let timer: NodeJS.Timeout | undefined;
  const late = (why: string) => (): void => void body.destroy(new Fault('REQUEST_TIMEOUT', why));
  const ask = (): void => {
    askedMs = performance.now();
    const rest: [number, string][] = [
      [pace.silentMs, `Nothing of the body came for ${pace.silentMs / 1000} s.`],
      [
        pace.silentMs + (read / pace.leastBytesPerSecond) * 1000 - waitedMs,
        `The body comes with less than ${pace.leastBytesPerSecond} bytes a second.`,
      ],
      [begunMs + pace.deadlineMs - askedMs, `The body did not come within ${pace.deadlineMs / 3_600_000} hours.`],
    ];
    const [ms, why] = rest.reduce((least, one) => (one[0] < least[0] ? one : least));
    timer = setTimeout(late(why), Math.max(0, ms));
  };
  try {
    ask();
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      clearTimeout(timer);
      waitedMs += performance.now() - askedMs;
      read += piece.length;
      if (read > bytes) throw new Fault('BAD_REQUEST', `The body is longer than the ${bytes} bytes that were declared.`);
      hash.update(piece);
      yield piece;
      ask();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ECONNRESET') throw new Fault('BAD_REQUEST', 'The connection ended within the body.');
    throw error;
  } finally {
    clearTimeout(timer);
  }
  if (read !== bytes) throw new Fault('BAD_REQUEST', `The body has ${read} bytes, and ${bytes} were declared.`);
  const found = hash.digest('hex');
  if (sha256 !== undefined && found !== sha256)
    throw new Fault('INVALID_INPUT', `The body has the SHA-256 ${found}, not that of its path. It was changed on the way; send it again.`);
}

/** All of a body that is small enough for memory. */
export async function gathered(body: Readable, bytes: number): Promise<Uint8Array> {
  const whole = Buffer.allocUnsafe(bytes);
  let at = 0;
  for await (const piece of checked(body, bytes)) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
