/** What a server makes of an encoded gradient, by the plain TypeScript of the kernels' references alone. */
import { codecKey } from '@paceline/codecs';
import { references } from '@paceline/kernels';
import type { Layout } from '@paceline/learning';
import { DEFAULT_DENSITY, DEFAULT_PARAMETER_DENSITY, type CodecSpec } from '@paceline/spec';

const BITS: Partial<Record<CodecSpec['kind'], number>> = { int8: 8, int4: 4, int2: 2 };

function halves(x: Float32Array): Float32Array {
  const largest = references.largestMagnitude(x);
  const factor = largest > 0 ? 2 ** (14 - Math.floor(Math.log2(largest))) : 1;
  return references.fromHalf(references.toHalf(x, factor), 1 / factor);
}

type Values = CodecSpec['values'];

/** The elements that are sent, as they are decoded. 512 of them share a step, or two magnitudes; what would not be shorter is sent as it is. */
function asSent(x: Float32Array, values: Values, key: number): Float32Array {
  const ifShorter = (bytes: Uint8Array, decode: (bytes: Uint8Array) => Float32Array): Float32Array =>
    bytes.length < 4 * x.length ? decode(bytes) : x;
  const whole = (bits: number): Float32Array =>
    ifShorter(references.quantize(x, bits, codecKey(key, 0, 0, -2)), (bytes) => references.dequantize(bytes, x.length, bits));
  if (values === 'bf16') return references.fromBfloat(references.toBfloat(x));
  if (values === 'int8') return whole(8);
  if (values === 'int4') return whole(4);
  if (values === 'int2') return ifShorter(references.toLevels(x), (bytes) => references.fromLevels(bytes, x.length));
  return x;
}

function largestOf(x: Float32Array, count: number, values: Values, key: number): Float32Array {
  const least = references.kthMagnitude(x, count);
  const equal = count - references.countFrom(x, least + 1);
  const bytes = references.gather(x, least, equal);
  const sent = bytes.subarray(4, 4 + 4 * count);
  const decoded = asSent(new Float32Array(sent.slice().buffer), values, key);
  sent.set(new Uint8Array(decoded.buffer, decoded.byteOffset, 4 * count));
  return references.scatter(bytes, x.length)!;
}

/** Elements of at least this magnitude, which is one of the mean gradient of the replica; all of them, where that takes no more bytes. */
function largeOf(x: Float32Array, threshold: number, examples: number): Float32Array {
  const least = Math.fround(threshold * Math.max(1, examples));
  const large = x.filter((value) => Math.abs(value) >= least).length;
  // A count, and at most nine bytes for each.
  return 4 + 9 * large >= 4 * x.length ? x : x.map((value) => (Math.abs(value) >= least ? value : 0));
}

export class ReferenceCodec {
  /** By replica: what its last gradient has left, or with EF21 the estimate of it. */
  private readonly rests = new Map<number, { readonly rest: Float32Array; readonly examples: number }>();

  constructor(
    private readonly spec: CodecSpec,
    private readonly seed: number,
    private readonly replicas: number,
    private readonly chunks: Layout['chunks'],
  ) {}

  /** @param examples of the round, which the sum is divided by */
  decoded(gradient: Float32Array, round: number, replica: number, examples: number): Float32Array {
    const kept = this.spec.errorFeedback ? this.rests.get(replica) : undefined;
    const growth = kept ? Math.fround(examples / kept.examples) : 1;
    const sign = this.spec.feedbackRule === 'ef21' ? -1 : 1;
    const whole = kept ? gradient.map((x, i) => x + sign * Math.fround(kept.rest[i]! * growth)) : gradient;
    const got = whole.slice();
    for (const { index, offset, length, section } of this.chunks) {
      const part = whole.subarray(offset, offset + length);
      if (section === 'trainable') got.set(this.chunk(part, codecKey(this.seed, round, replica, index), examples / this.replicas), offset);
    }
    const rest = sign < 0 ? got.map((x, i) => x + (kept ? Math.fround(kept.rest[i]! * growth) : 0)) : whole.map((x, i) => x - got[i]!);
    for (const { offset, length, section } of this.chunks) if (section === 'state') rest.fill(0, offset, offset + length);
    this.rests.set(replica, { rest, examples });
    return got;
  }

  /** With EF21: the sum of the estimates, which servers add what they get to. */
  private estimate: { readonly sum: Float32Array; readonly examples: number } | undefined;

  /** What the optimizer gets. @param sum of what replicas have sent @param examples of the round @param trainable elements */
  estimated(sum: Float32Array, examples: number, trainable: number): Float32Array {
    if (this.spec.feedbackRule !== 'ef21') return sum;
    const { estimate } = this;
    const growth = estimate ? Math.fround(examples / estimate.examples) : 1;
    const next = sum.map((x, i) => (i < trainable && estimate ? x + Math.fround(estimate.sum[i]! * growth) : x));
    this.estimate = { sum: next, examples };
    return next;
  }

  /** With differences: what workers have of the generation before. */
  private held: Float32Array | undefined;

  /** What workers compute with: parameters as they come from the servers. */
  published(weights: Float32Array, generation: number): Float32Array {
    const { parameters = 'float32' } = this.spec;
    if (parameters === 'float32') return weights;
    if (parameters.startsWith('delta-')) return (this.held = this.advanced(weights, generation));
    const got = weights.slice();
    for (const { index, offset, length, section } of this.chunks) {
      const part = weights.subarray(offset, offset + length);
      if (section === 'trainable')
        got.set(this.chunk(part, codecKey(this.seed, generation, -1, index), 1, { kind: parameters as CodecSpec['kind'] }), offset);
    }
    return got;
  }

  private advanced(weights: Float32Array, generation: number): Float32Array {
    const { held } = this;
    const got = weights.slice();
    for (const { index, offset, length, section } of held ? this.chunks : []) {
      if (section !== 'trainable') continue;
      const [values, base] = [weights, held!].map((vector) => vector.subarray(offset, offset + length)) as [Float32Array, Float32Array];
      const difference = this.difference(
        values.map((w, i) => w - base[i]!),
        codecKey(this.seed, generation, -1, index),
      );
      got.set(
        base.map((w, i) => w + difference[i]!),
        offset,
      );
    }
    return got;
  }

  private difference(x: Float32Array, key: number): Float32Array {
    const { parameters, parameterDensity = DEFAULT_PARAMETER_DENSITY } = this.spec;
    if (parameters === 'delta-int4') return references.dequantize(references.quantize(x, 4, key), x.length, 4);
    if (parameters === 'delta-int2') return references.fromLevels(references.toLevels(x), x.length);
    return largestOf(x, Math.max(1, Math.round(x.length * parameterDensity)), 'int2', key);
  }

  /** @param examples of a replica, on average */
  private chunk(
    x: Float32Array,
    key: number,
    examples: number,
    spec: Pick<CodecSpec, 'kind' | 'density'> & Partial<CodecSpec> = this.spec,
  ): Float32Array {
    const { kind, density = DEFAULT_DENSITY, errorFeedback, values } = spec;
    const bits = BITS[kind];
    const count = Math.max(1, Math.round(x.length * density));
    if (kind === 'none') return x;
    if (bits !== undefined) return references.dequantize(references.quantize(x, bits, key), x.length, bits);
    if (kind === 'fp16') return halves(x);
    if (kind === 'bf16') return references.fromBfloat(references.toBfloat(x));
    if (kind === 'sign') return references.fromSigns(references.toSigns(x), x.length);
    if (kind === 'threshold') return largeOf(x, spec.threshold!, examples);
    if (kind === 'top-k') return largestOf(x, count, values, key);
    if (kind === 'random-k')
      return references.scatterDrawn(asSent(references.gatherDrawn(x, count, key, !errorFeedback), values, key), x.length, key);
    throw new Error(`the reference has no ${kind}`);
  }
}
