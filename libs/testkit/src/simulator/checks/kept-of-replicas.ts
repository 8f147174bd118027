/**
 * Runs whose replicas keep something between rounds where they are computed: residuals of a codec, factors of power-sgd, slots of their own optimizer. Which worker computes a
 * replica decides the bits, so no undisturbed run has them. Instead:
 *
 *   - what a worker sends is its gradient and what it left out in the round before, once, in a plain loop (`encoded`)
 *   - what a shard adds up is what a worker of this attempt has computed for that round and replica (`gathered`)
 *   - what a worker takes from a checkpoint, or from the worker that had the replica before, is what that round has left of it at a worker (`taken`)
 *   - what it applies is the sum of that, and from there on all that follows is compared with it (`Reference.choose`)
 *   - with plan two-phase it applies it as follows from what all shards have gathered (`decided`)
 *
 * A replica that begins a round with nothing, though rounds of the attempt were before it, has lost what was kept: that is counted.
 */
import { codecKey, codecOf, type Codec, type ResidualLoss } from '@paceline/codecs';
import { acquireRegion, Shard, type Region, type ReplicaResidual, type RoundDecision } from '@paceline/exchange';
import { split } from '@paceline/learning';
import type { FrameHeader } from '@paceline/protocol';
import { keepsEstimate, keepsRest } from '@paceline/spec';
import { through } from '../run/replica-gradient.js';
import type { TinyRun } from '../run/tiny-run.js';
import type { Checks } from './checks.js';
import type { Reference } from './reference.js';

/** A part of an attempt that a server holds. */
interface KeptPart {
  readonly name: string;
  readonly attempt: number;
  readonly index: number;
  readonly memory: { readonly chunks: readonly { readonly index: number }[] };
  readonly isStandby: boolean;
  readonly restore: { readonly round: number } | undefined;
  readonly shard: object;
  readonly run: { readonly place: { readonly isPrimary: boolean }; readonly job: { readonly servers: number } };
}

interface KeptRun {
  readonly run: TinyRun;
  readonly checks: Checks;
  readonly reference: Reference;
  readonly network: { count(what: string): void };
  readonly hosted: readonly KeptPart[];
  isFollowed(part: Pick<KeptPart, 'attempt'>): boolean;
}

const FLOAT_BYTES = 4;

interface Computed {
  readonly attempt: number;
  /** Whoever keeps what is kept. */
  readonly worker: object;
  readonly round: number;
  readonly replica: number;
  /** What the worker says of what was left in the round before. */
  readonly lost: ResidualLoss | undefined;
}

interface Left {
  readonly rest: Float32Array;
  readonly velocity: Float32Array;
  /** With power-sgd, what each chunk's next power iteration begins with. */
  readonly warm: Map<number, Float32Array>;
  /** What a server makes of the gradient that was sent. */
  decoded?: Float32Array;
}

/** Private parts of a shard that are looked at. */
interface OpenShard {
  readonly present: { reduce(header: FrameHeader, region: Region): string | undefined };
}

/** A replica that goes on from what is left of a gradient that did not count: its loss has to be told. */
const OF_NO_ACCOUNT = 'residual of a gradient that did not count';

export class KeptOfReplicas {
  private readonly left = new Map<object, Map<string, Left>>();
  /** Chunks that workers have computed, by attempt, round, node and chunk. */
  private readonly offers = new Map<string, Float32Array[]>();
  /** Chunks that a part has gathered, by round, node and chunk. */
  private readonly gathered = new Map<KeptPart, Map<string, Float32Array>>();
  /** Plan two-phase: decisions that were right, by attempt, round and what they say. */
  private readonly rightly = new Set<string>();
  private readonly codec: Codec | undefined;
  /** EF21 */
  private readonly estimates: boolean;

  constructor(private readonly cluster: KeptRun) {
    this.codec = codecOf(cluster.run.spec.codec, cluster.run.layout);
    this.estimates = keepsEstimate(cluster.run.spec);
  }

  /** A worker has encoded the gradient of a replica. */
  encoded(computed: Computed, gradient: Float32Array, sent: readonly Uint8Array[], codecs: Uint8Array): void {
    const { run, checks } = this.cluster;
    const { attempt, round, replica } = computed;
    const before = this.before(computed);
    const isLost = keepsRest(run.spec.codec!) && before === undefined && round > 0;
    checks.expect(
      isLost === (computed.lost !== undefined),
      'I2',
      () => `replica ${replica} of round ${round}: what it had left out is ${isLost ? 'lost' : 'there'}, and its worker says otherwise`,
    );
    const after: Left = { rest: new Float32Array(gradient.length), velocity: new Float32Array(gradient.length), warm: new Map() };
    const whole = this.gathers(gradient, round, before, after);
    const decoded = whole.slice();
    for (const { index, section, offset, length } of run.layout.chunks) {
      if (section === 'state') continue;
      const [from, to] = [offset, offset + length];
      const key = codecKey(run.spec.seed, round, replica, index);
      const { values, bytes, warm } = this.roundTrip(whole.subarray(from, to), { round, chunk: index, key, warm: before?.warm.get(index) });
      if (warm) after.warm.set(index, warm);
      const isSame = codecs[index] === (bytes ? this.codec!.number : 0) && (!bytes || Buffer.compare(bytes, sent[index]!) === 0);
      checks.expect(
        isSame,
        'I2',
        () => `replica ${replica} of round ${round}, chunk ${index}: what is sent is not its gradient and what it left out before, once`,
      );
      decoded.set(values, from);
      this.keep(after, whole, values, from, to, bytes !== undefined);
      if (before && this.estimates) this.addEstimate(after, before, round, from, to);
    }
    if (before?.decoded && !this.hasCounted(attempt, round - 1, replica, before.decoded)) {
      checks.expect(
        !this.estimates,
        'I2',
        () => `replica ${replica} of round ${round} goes on from an estimate that the servers do not have`,
      );
      this.cluster.network.count(OF_NO_ACCOUNT);
    }
    after.decoded = decoded;
    // The servers have the estimate that is lost in their sum: nobody goes on from this one, and no shard may take its gradient.
    if (isLost && this.estimates) return this.cluster.network.count('estimate lost');
    this.leftBy(computed.worker).set(`${round}/${replica}`, after);
    this.computed({ attempt, round, lo: replica, hi: replica + 1 }, decoded);
  }

  /** Whether servers have gathered this gradient, and not that of another worker which began with other residuals. */
  private hasCounted(attempt: number, round: number, replica: number, decoded: Float32Array): boolean {
    const parts = [...this.gathered].filter(([part]) => part.attempt === attempt).map(([, nodes]) => nodes);
    return this.cluster.run.layout.chunks.every(({ index, offset, length }) => {
      const key = `${round}/${replica}-${replica + 1}/${index}`;
      return parts.every((nodes) => !nodes.has(key) || isSame(nodes.get(key)!, decoded.subarray(offset, offset + length)));
    });
  }

  /** A worker goes on from what a checkpoint has of a replica, or the worker that has computed it in that round. */
  taken({ worker, attempt, round }: Omit<Computed, 'replica' | 'lost'>, { replica, values }: ReplicaResidual): void {
    const key = `${round}/${replica}`;
    const left = [...this.left.values()].map((of) => of.get(key)).find((of) => of !== undefined && isSame(this.flat(of), values));
    const what = `replica ${replica}: what a worker is given of it is not what round ${round} has left`;
    this.cluster.checks.expect(left !== undefined, 'I2', () => what);
    if (left) this.leftBy(worker).set(key, left);
    this.cluster.network.count(round < this.firstRoundOf(attempt) ? 'residual from a checkpoint' : 'residual handed on');
  }

  /** In the order in which it is kept. */
  private flat({ rest, velocity, warm }: Left): Float32Array {
    const { layout, spec } = this.cluster.run;
    const parts = layout.chunks
      .filter(({ section }) => section === 'trainable')
      .flatMap(({ index, offset, length }) => [
        rest.subarray(offset, offset + length),
        spec.codec!.kind === 'dgc' ? velocity.subarray(offset, offset + length) : [],
        warm.get(index) ?? [],
      ]);
    return Float32Array.from(parts.flatMap((part) => [...part]));
  }

  /** A worker has computed the sum of some replicas. */
  computed(node: { readonly attempt: number; readonly round: number; readonly lo: number; readonly hi: number }, sum: Float32Array): void {
    for (const { index, offset, length } of this.cluster.run.layout.chunks) {
      const key = `${node.attempt}/${node.round}/${node.lo}-${node.hi}/${index}`;
      this.offers.set(key, [...(this.offers.get(key) ?? []), sum.slice(offset, offset + length)]);
    }
  }

  /** Looks at what the shard of a part takes into its trees. */
  watch(part: KeptPart): void {
    if (!(part.shard instanceof Shard)) return;
    const { present } = part.shard as unknown as OpenShard;
    const gathered = new Map<string, Float32Array>();
    this.gathered.set(part, gathered);
    const reduce = present.reduce.bind(present);
    present.reduce = (header, region) => {
      const { round, nodeLo: lo, nodeHi: hi, chunk } = header;
      const values = decodedOf(region, this.cluster.run.layout.chunks[chunk]!.length);
      const key = `${round}/${lo}-${hi}/${chunk}`;
      const before = gathered.get(key);
      // Before it is added up: the last one leads to the update at once.
      gathered.set(key, values);
      const why = reduce(header, region);
      if (why === undefined) this.isOffered(part, header, values);
      else if (before) gathered.set(key, before);
      else gathered.delete(key);
      return why;
    };
  }

  /** Before a shard applies a sum to a chunk. @returns whether the update is to be compared */
  applying(part: KeptPart, chunk: number, round: number, gradient: Region, decision: RoundDecision | undefined): boolean {
    const { checks, reference, run } = this.cluster;
    if (!this.cluster.isFollowed(part)) return false;
    const values = gradient.floats.slice();
    // A standby that follows has the sum from its primary.
    if (part.isStandby && !part.run.place.isPrimary) return reference.hasChosen(round, chunk, values);
    const expected = this.sum(this.gathered.get(part)!, round, chunk, 0, run.shape.replicas);
    checks.expect(
      expected !== undefined && isSame(expected, values),
      'I2',
      () => `${part.name} applies to chunk ${chunk} in round ${round} what is not the sum of what it was sent`,
    );
    this.decided(part, round, decision);
    return reference.choose(round, chunk, { sum: values, decision, term: (part.shard as Shard).term });
  }

  /** Where a shard was taken over, the decision may be that of what its former primary had gathered. */
  private decided(part: KeptPart, round: number, decision: RoundDecision | undefined): void {
    if (!decision) return;
    const { checks, reference } = this.cluster;
    const { attempt, name } = part;
    const said = textOf(decision);
    const key = `${attempt}/${round}/${said}`;
    if (this.rightly.has(key)) return;
    const follows = this.gatheredSums(part, round).map((sum) => textOf(reference.decisionOf(round, sum)));
    checks.expect(
      follows.includes(said),
      'I8',
      () => `${name} applies round ${round} as ${said}, and what was gathered leads to ${follows[0]}`,
    );
    this.rightly.add(key);
  }

  /** Sums of all chunks in a round, one for each way to take every shard's from a server that has gathered them. */
  private gatheredSums({ attempt, run: { job } }: KeptPart, round: number): Float32Array[] {
    const { run } = this.cluster;
    const whole = (part: KeptPart) =>
      part.memory.chunks.map(({ index }) => ({ index, sum: this.sum(this.gathered.get(part)!, round, index, 0, run.shape.replicas) }));
    let ways = [new Float32Array(run.layout.totalLength)];
    // Where workers hold the shards, an attempt may have fewer than the one before.
    for (let server = 0; server < job.servers; server++) {
      const parts = [...this.gathered.keys()].filter((part) => part.attempt === attempt && part.index === server);
      const own = parts.map(whole).filter((chunks) => chunks.every(({ sum }) => sum !== undefined));
      ways = ways.flatMap((way) =>
        own.map((chunks) => {
          const more = way.slice();
          for (const { index, sum } of chunks) more.set(sum!, run.layout.chunks[index]!.offset);
          return more;
        }),
      );
    }
    return ways;
  }

  private isOffered(part: KeptPart, { round, nodeLo: lo, nodeHi: hi, chunk }: FrameHeader, values: Float32Array): void {
    const offers = this.offers.get(`${part.attempt}/${round}/${lo}-${hi}/${chunk}`) ?? [];
    this.cluster.checks.expect(
      offers.some((offer) => isSame(offer, values)),
      'I2',
      () => `${part.name} takes a gradient of replicas ${lo}–${hi - 1} in round ${round}, chunk ${chunk}, that nobody has computed`,
    );
  }

  private sum(nodes: ReadonlyMap<string, Float32Array>, round: number, chunk: number, lo: number, hi: number): Float32Array | undefined {
    const whole = nodes.get(`${round}/${lo}-${hi}/${chunk}`);
    if (whole || hi - lo === 1) return whole?.slice();
    const middle = split(lo, hi);
    const [left, right] = [this.sum(nodes, round, chunk, lo, middle), this.sum(nodes, round, chunk, middle, hi)];
    if (!left || !right) return undefined;
    return left.map((value, i) => Math.fround(value + right[i]!));
  }

  private leftBy(worker: object): Map<string, Left> {
    let left = this.left.get(worker);
    if (!left) this.left.set(worker, (left = new Map()));
    return left;
  }

  private before({ attempt, worker, round, replica }: Computed): Left | undefined {
    const before = this.leftBy(worker).get(`${round - 1}/${replica}`);
    if (!keepsRest(this.cluster.run.spec.codec!)) return undefined;
    if (!before && round > this.firstRoundOf(attempt)) this.cluster.network.count('residual lost');
    return before;
  }

  private firstRoundOf(attempt: number): number {
    return this.cluster.hosted.find((part) => part.attempt === attempt)?.restore?.round ?? 0;
  }

  /** What is to be encoded: the gradient, with dgc its velocity, and what was left out. */
  private gathers(gradient: Float32Array, round: number, before: Left | undefined, after: Left): Float32Array {
    const { layout, schedule, spec } = this.cluster.run;
    const { trainableLength } = layout;
    const growth = before ? schedule.round(round).count / schedule.round(round - 1).count : 1;
    const [ofRest, ofVelocity] = [Math.fround(growth), Math.fround((spec.codec!.momentum ?? 0) * growth)];
    return gradient.map((value, i) => {
      if (i >= trainableLength) return value;
      let whole = value;
      if (spec.codec!.kind === 'dgc') {
        if (before) whole = Math.fround(whole + Math.fround(ofVelocity * before.velocity[i]!));
        after.velocity[i] = whole;
      }
      return before ? Math.fround(whole + Math.fround((this.estimates ? -ofRest : ofRest) * before.rest[i]!)) : whole;
    });
  }

  private roundTrip(
    values: Float32Array,
    { round, chunk, key, warm: before }: { round: number; chunk: number; key: number; warm: Float32Array | undefined },
  ): { values: Float32Array; bytes: Uint8Array | undefined; warm: Float32Array | undefined } {
    const { schedule, shape } = this.cluster.run;
    const ofRound = this.codec!.at?.(round) ?? this.codec!;
    const codec = ofRound.of?.(chunk) ?? ofRound;
    const examples = schedule.round(round).count / shape.replicas;
    const warmFloats = codec.warmFloats?.(values.length) ?? 0;
    let [bytes, warm]: [Uint8Array | undefined, Float32Array | undefined] = [undefined, undefined];
    const made = through(values, codec.maxBytes(values.length), (arena, from, between, to) => {
      const [first, next] = [arena.alloc(FLOAT_BYTES * Math.max(1, warmFloats)), arena.alloc(FLOAT_BYTES * Math.max(1, warmFloats))];
      if (before) arena.f32(first, warmFloats).set(before);
      const start = warmFloats > 0 ? { before: before && first, after: next } : undefined;
      const length = codec.encode(arena, from, between, values.length, key, examples, start);
      if (warmFloats > 0) warm = arena.f32(next, warmFloats).slice();
      for (const pointer of [first, next]) arena.free(pointer);
      if (length === 0) return false;
      bytes = arena.bytes(between, length).slice();
      return codec.decode(arena, between, length, to, values.length, key);
    });
    return { values: made, bytes, warm };
  }

  /** Nothing is kept of what is not finite. */
  private keep({ rest, velocity }: Left, whole: Float32Array, decoded: Float32Array, from: number, to: number, isEncoded: boolean): void {
    for (let i = from; i < to; i++) {
      rest[i] = this.estimates ? decoded[i - from]! : isEncoded ? Math.fround(whole[i]! - decoded[i - from]!) : 0;
      if (!isEncoded || decoded[i - from] !== 0) velocity[i] = 0;
    }
    if (rest.subarray(from, to).every((value) => Number.isFinite(value))) return;
    rest.fill(0, from, to);
    velocity.fill(0, from, to);
  }

  /** With EF21: what was decoded is added to the estimate of the round before. */
  private addEstimate({ rest }: Left, before: Left, round: number, from: number, to: number): void {
    const { schedule } = this.cluster.run;
    const growth = Math.fround(schedule.round(round).count / schedule.round(round - 1).count);
    for (let i = from; i < to; i++) rest[i] = Math.fround(rest[i]! + Math.fround(growth * before.rest[i]!));
  }
}

/** What a gradient is as float32, which itself stays as it came: -0 + x is x. */
function decodedOf(region: Region, length: number): Float32Array {
  const copy = acquireRegion(region.arena, length);
  copy.floats.fill(-0);
  copy.add(region);
  const values = copy.floats.slice();
  copy.release();
  return values;
}

const textOf = (decision: RoundDecision | undefined): string =>
  decision ? JSON.stringify([decision.skip, decision.examples, decision.scale, decision.variables]) : 'nothing';

function isSame(a: Float32Array, b: Float32Array): boolean {
  const [x, y] = [new Uint32Array(a.buffer, a.byteOffset, a.length), new Uint32Array(b.buffer, b.byteOffset, b.length)];
  return x.length === y.length && x.every((value, i) => value === y[i]);
}
