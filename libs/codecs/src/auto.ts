/**
 * `codec: auto`: which codec a link is worth. A pure function of what was measured.
 *
 *   a round = step + latency + transfer        transfer = what workers wait, less the latency; it goes with the bytes
 *   with a codec = step + latency + transfer · (its bytes / dense bytes) + the time of encoding and decoding
 *
 * None is the answer unless another saves enough: part of the wait is work of the servers, which a codec does not shorten. Codecs of the table keep nothing
 * from round to round, so the run has equal bits, given what was picked.
 */
import type { Arena } from '@paceline/kernels';
import { encodedBits, type CodecSpec } from '@paceline/spec';
import { codecOf } from './codecs.js';
import type { Codec } from './codec.js';

type Kind = CodecSpec['kind'];
/** Differences are a choice of the user: with them bits follow from where an attempt began. */
type ParameterKind = Exclude<NonNullable<CodecSpec['parameters']>, `delta-${string}`>;

export interface AutoCodec {
  readonly kind: Kind;
  readonly parameters: ParameterKind;
}

/** From the safest on. */
export const AUTO_CODECS = [
  { kind: 'none', parameters: 'float32' },
  { kind: 'none', parameters: 'int8' },
  { kind: 'fp16', parameters: 'fp16' },
  { kind: 'int8', parameters: 'int8' },
  { kind: 'int4', parameters: 'int8' },
] as const satisfies readonly AutoCodec[];

/** A codec has to save this share of the round, and so many milliseconds: one that saves less is not worth its error. */
const LEAST_SHARE = 0.15;
const LEAST_MS = 3;
/** From here on the wait is work of processes, as on Unix sockets, and none is picked. A gigabit each way is 250 MB/s at most. */
const FAST_BYTES_PER_SECOND = 260e6;

/** What a run has measured: the slowest step, and the shortest wait, which is that of the worker that was waited for. */
export interface MeasuredRounds {
  readonly stepMs: number;
  readonly waitMs: number;
  readonly latencyMs: number;
  /** Bytes of a generation, and of one gradient, as float32. */
  readonly denseBytes: number;
  /** Gradients that a worker sends in a round without a codec, and with one: each replica by itself. */
  readonly nodes: number;
  readonly replicas: number;
  /** Gradients that each server decodes, of so many bytes in all. */
  readonly decodedBytes: number;
}

/** Nanoseconds of an element. */
export interface CodecCost {
  readonly encodeNs: number;
  readonly decodeNs: number;
}

export interface PickedCodec extends AutoCodec {
  readonly why: string;
  readonly bytesPerSecond: number;
  readonly roundMs: number;
  readonly expectedMs: number;
}

const shareOf = (kind: Kind | ParameterKind): number =>
  kind === 'float32' || kind === 'none' ? 1 : encodedBits({ kind, errorFeedback: false }) / 32;

export function pickCodec(measured: MeasuredRounds, costOf: (kind: Kind) => CodecCost): PickedCodec {
  const { stepMs, waitMs, latencyMs, denseBytes, nodes, replicas, decodedBytes } = measured;
  const transferMs = Math.max(0, waitMs - latencyMs);
  const bytes = denseBytes * (nodes + 1);
  const roundMs = stepMs + waitMs;
  const expected = AUTO_CODECS.map(({ kind, parameters }) => {
    if (kind === 'none' && parameters === 'float32') return roundMs;
    // Only what is encoded is sent replica by replica.
    const sent = kind === 'none' ? nodes : replicas;
    const share = (denseBytes * (sent * shareOf(kind) + shareOf(parameters))) / bytes;
    const [up, down] = [costOf(kind), costOf(parameters)];
    // Parameters are encoded once by the servers together, and decoded by every worker.
    const ns = (denseBytes / 4) * (replicas * up.encodeNs + down.encodeNs + down.decodeNs) + (decodedBytes / 4) * up.decodeNs;
    return stepMs + Math.min(waitMs, latencyMs) + transferMs * share + ns / 1e6;
  });
  let best = 0;
  const bytesPerSecond = transferMs > 0 ? (bytes / transferMs) * 1000 : 0;
  const isFast = transferMs === 0 || bytesPerSecond > FAST_BYTES_PER_SECOND;
  for (const [i, ms] of isFast ? [] : expected.entries()) {
    const savedMs = expected[best]! - ms;
    if (savedMs >= Math.max(LEAST_MS, LEAST_SHARE * expected[best]!)) best = i;
  }
  const { kind, parameters } = AUTO_CODECS[best]!;
  const tried = AUTO_CODECS.map((codec, i) => `${nameOf(codec)} ${ms(expected[i]!)}`).join(', ');
  const why =
    `a round takes ${ms(roundMs)}: ${ms(stepMs)} step, ${ms(waitMs)} exchange of ${megabytes(bytes)} with ${ms(latencyMs)} latency` +
    `${bytesPerSecond > 0 ? `, which is ${megabytes(bytesPerSecond)}/s` : ''}; expected of a round: ${tried}`;
  return { kind, parameters, why, bytesPerSecond, roundMs, expectedMs: expected[best]! };
}

const nameOf = ({ kind, parameters }: AutoCodec): string =>
  kind === parameters || parameters === 'float32' ? kind : `${kind} with parameters in ${parameters}`;
const ms = (value: number): string => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const megabytes = (value: number): string => `${(value / 1e6).toFixed(value < 1e7 ? 2 : 0)} MB`;

const TRIED_FLOATS = 65_536;
const TRIES = 3;

/** What the codecs of the table take on this machine: the best of a few. */
export function measureCodecs(arena: Arena, now: () => number): (kind: Kind) => CodecCost {
  const costs = new Map<Kind, CodecCost>();
  const values = arena.f32(arena.alloc(4 * TRIED_FLOATS), TRIED_FLOATS);
  for (let i = 0; i < TRIED_FLOATS; i++) values[i] = Math.sin(i) * 1e-3;
  const [from, back] = [values.byteOffset, arena.alloc(4 * TRIED_FLOATS)];
  for (const { kind } of AUTO_CODECS) {
    const codec = costs.has(kind) ? undefined : codecOf({ kind, errorFeedback: false });
    if (codec) costs.set(kind, costOf(codec, arena, from, back, now));
  }
  arena.free(back);
  arena.free(from);
  return (kind) => costs.get(kind) ?? { encodeNs: 0, decodeNs: 0 };
}

function costOf(codec: Codec, arena: Arena, from: number, back: number, now: () => number): CodecCost {
  const encoded = arena.alloc(codec.maxBytes(TRIED_FLOATS));
  let [encodeMs, decodeMs] = [Infinity, Infinity];
  for (let i = 0; i < TRIES; i++) {
    const begunMs = now();
    const bytes = codec.encode(arena, from, encoded, TRIED_FLOATS, i, 1);
    const encodedMs = now();
    codec.decode(arena, encoded, bytes, back, TRIED_FLOATS, i);
    encodeMs = Math.min(encodeMs, encodedMs - begunMs);
    decodeMs = Math.min(decodeMs, now() - encodedMs);
  }
  arena.free(encoded);
  return { encodeNs: (encodeMs * 1e6) / TRIED_FLOATS, decodeNs: (decodeMs * 1e6) / TRIED_FLOATS };
}
