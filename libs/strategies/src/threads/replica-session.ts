/**
 * One model in a compute thread: its engine, and the part of the replicas and of the update that is this thread's.
 *
 *     load parameters -> gradient of each own replica -> all gradients have come -> in its own share: sum over the tree, update -> all updated
 *
 * With other processes the sums of this one's nodes are added to theirs in between (members/group-thread.ts). The sum runs over the replicas in the order of the reduction tree (libs/learning/src/tree.ts), whoever computes it, so its bits do not
 * depend on the number of threads.
 */
import { createEngine, type Batch, type Engine } from '@paceline/engine';
import { onDevice } from './thread-engine.js';
import { Arena } from '@paceline/kernels';
import { createLayout, replicaRows, split, type Layout } from '@paceline/learning';
import type { RunSpec } from '@paceline/spec';
import {
  BEGINS,
  COUNT,
  FIRST_SET,
  headerOf,
  LOCAL_STEP,
  lossesOf,
  RATE,
  ROWS_AT_ONCE,
  SETS,
  slotRange,
  STEP_NUMBER,
  TAKES_PARAMETERS,
  TAKES_SLOTS,
  TOGETHER,
  VERSION,
  type BatchBuffers,
  type OpenModel,
  type SessionCounts,
  type ThreadEngine,
  type ToThread,
} from './protocol.js';
import { fragmentsOf, within, type Fragment, type FragmentRange } from './fragments.js';
import { LocalUpdates, type UpdatedRange } from './local-updates.js';
import { joined, marked, shareOfChunk, type Range } from './ranges.js';
import { undecayedOf } from '../update-rule.js';
import type { ModelSession } from './model-session.js';
import { updateOf, type Update } from './updates.js';
import type { PlanSpec } from '../exchange.js';

/** As the engine takes it: nothing is measured, probabilities are probabilities, and layers and losses are those of tf.js. */
export function engineSpec(spec: PlanSpec): Parameters<typeof createEngine>[0]['spec'] {
  return {
    model: spec.model as Exclude<RunSpec['model'], undefined>,
    engine: 'wasm',
    seed: spec.seed,
    losses: spec.losses as Exclude<RunSpec['losses'], undefined>,
    loss: undefined,
    lossWeights: undefined,
    lossFromLogits: undefined,
    metrics: [],
    asTfjs: true,
    ...(spec.freeze.length > 0 ? { freeze: [...spec.freeze] } : {}),
  };
}

type Chunk = Layout['chunks'][number];

export type SessionEngine = Pick<Engine, 'load' | 'step' | 'predict' | 'dispose'>;

export class ReplicaSession implements ModelSession {
  private readonly headers: readonly Float64Array[];
  protected readonly losses: readonly Float64Array[];
  protected readonly buffers: (BatchBuffers | undefined)[] = [];
  /** Which of them the present step or prediction uses. */
  protected set = FIRST_SET;
  protected readonly parameters: Float32Array;
  protected readonly gradients: readonly Float32Array[];
  private readonly update: Update;
  private readonly local: LocalUpdates | undefined;
  /** Where replicas train alone: what each of them updates. */
  private allRanges: readonly UpdatedRange[] = [];
  /** What this thread adds up of what this process has. */
  private chunks: readonly Range[] = [];
  /** What it updates. */
  private updates: { readonly chunk: Range; readonly trained: readonly Range[]; readonly isState: boolean }[] = [];
  /** Of each fragment: what this thread adds up, and what it updates. */
  private fragments: { readonly collected: readonly FragmentRange[]; readonly taken: readonly (UpdatedRange & FragmentRange)[] }[] = [];
  private readonly cut: readonly Fragment[];
  private loaded = -1;
  /** The version of the parameters of the present step: the main thread may write that of the next one already. */
  private version = -1;
  private loads = 0;
  private updatedElements = 0;
  /** Replicas of this thread, in order. */
  readonly replicas: readonly number[];

  protected constructor(
    protected readonly open: OpenModel,
    private readonly index: number,
    threads: number,
    private readonly layout: Layout,
    private readonly arena: Arena,
    private readonly engine: SessionEngine,
  ) {
    const { memory, rule } = open;
    const sets = Array.from({ length: SETS }, (_, set) => set);
    this.headers = sets.map((set) => headerOf(memory.header, set));
    this.losses = sets.map((set) => lossesOf(memory.losses, set, open.share.replicas));
    this.parameters = arena.f32(memory.parameters, layout.totalLength);
    this.gradients = memory.gradients.map((pointer) => arena.f32(pointer, layout.totalLength));
    this.update = updateOf(rule, memory.zeros);
    const { share, outer, fragments = 0 } = open;
    this.cut = fragmentsOf(layout, fragments);
    const lengths = { total: layout.totalLength, trainable: layout.trainableLength };
    if (outer) this.local = new LocalUpdates(arena, memory, memory.local!, outer, lengths, share.replicas);
    const { from, to } = replicaRows(share.to - share.from, threads, index); // replicas are shared out as rows are
    this.replicas = Array.from({ length: to - from }, (_, i) => share.from + from + i);
    this.freeze([]);
  }

  static async open(open: OpenModel, index: number, threads: number, chosen?: ThreadEngine): Promise<ReplicaSession> {
    const layout = createLayout(open.description);
    const arena = Arena.attach(open.memory.arena);
    const { spec, description, format } = open;
    const engine = await createEngine({ ...chosen, spec: engineSpec(spec), description, format, layout });
    onDevice(engine, chosen);
    return new ReplicaSession(open, index, threads, layout, arena, engine);
  }

  useBuffers(buffers: BatchBuffers, set = FIRST_SET): void {
    this.buffers[set] = buffers;
  }

  /** A step or prediction begins. */
  useSet(set: number): void {
    this.set = set;
    this.version = this.header[VERSION]!;
  }

  protected get header(): Float64Array {
    return this.headers[this.set]!;
  }

  freeze(paths: readonly string[]): void {
    const { layout } = this;
    const frozen = new Set(paths);
    const { memory, rule } = this.open;
    const kept = marked(
      layout.variables.filter(({ path, section }) => section === 'trainable' && !frozen.has(path)),
      undecayedOf(rule),
    );
    // Threads have equal shares, whatever the chunks, because sums and updates work element by element.
    const own = layout.chunks.flatMap((chunk) => this.ownPartOf(chunk, { offset: 0, length: layout.totalLength }));
    this.chunks = own;
    const rangesOf = (chunk: Chunk) => {
      const isState = chunk.section === 'state';
      return { chunk, trained: isState ? [chunk] : joined(chunk, kept), isState };
    };
    const parts = memory.own ? layout.chunks.flatMap((chunk) => this.ownPartOf(chunk, memory.own!)) : own;
    this.updates = this.isServed ? [] : parts.map(rangesOf);
    if (this.local) this.allRanges = updated(layout.chunks.map(rangesOf));
    const taken = updated(this.updates);
    this.fragments = this.cut.map((fragment) => ({ collected: within(own, fragment), taken: within(taken, fragment) }));
  }

  /** Replicas take the present step alone. */
  get isLocal(): boolean {
    return this.local !== undefined && this.header[LOCAL_STEP] !== TOGETHER;
  }

  /** A part of an average of what the replicas have, in this thread's chunks. */
  average({ vectors, part }: Pick<Extract<ToThread, { kind: 'average' }>, 'vectors' | 'part'>): void {
    const { local } = this;
    if (!local) return;
    for (const vector of vectors) {
      if (part !== 'take') {
        local.collect(vector, this.chunks);
        this.sumNodes();
      }
      if (part !== 'collect') local.take(vector, updated(this.updates));
    }
    this.loaded = -1;
  }

  /** The same of a fragment. */
  exchangeFragment({ fragment, part, mixing }: Omit<Extract<ToThread, { kind: 'fragment' }>, 'kind' | 'model'>): void {
    const { local } = this;
    if (!local) return;
    const { collected, taken } = this.fragments[fragment]!;
    if (part === 'take') return local.takeFragment(taken, mixing);
    const { memory, share } = this.open;
    local.collectFragment(collected);
    for (const { packed: offset, length } of collected)
      for (const { lo, hi } of share.nodes) this.sum({ offset, length }, lo, hi, memory.local!.fragments);
  }

  private loadLocal(replica: number): void {
    const { local } = this;
    if (!local || !this.isLocal) return;
    const { [LOCAL_STEP]: how } = this.header;
    if (how === BEGINS) local.begin(replica);
    if (how === TAKES_SLOTS) local.takeSlots(replica);
    if (how === TAKES_PARAMETERS) local.takeParameters(replica);
    this.copy(local.parameters(replica));
    this.loaded = -1;
  }

  get counts(): SessionCounts {
    return { loads: this.loads, updated: this.updatedElements };
  }

  private copy(parameters: Float32Array): void {
    this.loads++;
    this.engine.load(parameters);
  }

  /** This thread's share of a range, in a chunk: the threads that update have even shares. */
  private ownPartOf(chunk: Chunk, range: Range): Chunk[] {
    const part = shareOfChunk(chunk, range, this.index, this.open.updaters);
    return part ? [{ ...chunk, ...part }] : [];
  }

  /** Parameter servers update what this process adds up. */
  get isServed(): boolean {
    return this.open.isServed === true;
  }

  /** Each process updates a part of the parameters. */
  get isSharded(): boolean {
    return this.open.memory.own !== undefined;
  }

  /** The parameters, unless the engine has these already. */
  load(): void {
    if (this.version === this.loaded) return;
    this.loaded = this.version;
    this.copy(this.parameters);
  }

  /** The gradient of one replica, to its place in the arena. */
  replica(replica: number): void | Promise<void> {
    const count = this.header[COUNT]!;
    const { share } = this.open;
    const { from, to } = replicaRows(count, share.replicas, replica);
    const out = this.gradients[replica - share.from]!;
    this.loadLocal(replica - share.from);
    if (from === to) {
      out.fill(0);
      this.losses[this.set]![replica] = 0;
      return;
    }
    const { metricSums } = this.engine.step({
      round: this.header[STEP_NUMBER]! - 1,
      replica,
      batches: [this.rows(from, to, count)],
      out,
    });
    this.losses[this.set]![replica] = metricSums[0]!;
  }

  /** The outputs of the rows of one replica, to their places. */
  predict(replica: number, moved: () => void): void | Promise<void> {
    const [count, rowsAtOnce] = [this.header[COUNT]!, this.header[ROWS_AT_ONCE]!];
    const { from, to } = replicaRows(count, this.open.share.replicas, replica);
    for (let at = from; at < to; at += rowsAtOnce) {
      const rows = this.rows(at, Math.min(at + rowsAtOnce, to), count);
      this.engine.predict!(rows, rows.outputs!);
      moved();
    }
  }

  private rows(from: number, to: number, count: number): Batch {
    const { inputs, targets, weights, outputs } = this.buffers[this.set]!;
    const part = (buffer: SharedArrayBuffer, floats: number): Float32Array =>
      new Float32Array(buffer, from * floats * 4, (to - from) * floats);
    const { format, description } = this.open;
    const floatsOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
    return {
      count: to - from,
      inputs: inputs.map((buffer, i) => part(buffer, floatsOf(format.inputs[i]!.shape))),
      targets: targets.map((buffer, i) => part(buffer, floatsOf(format.targets[i]!.shape))),
      weights: new Float32Array(weights, 0, count).subarray(from, to),
      outputs: outputs.map((buffer, i) => part(buffer, floatsOf(description.outputs[i]!.shape))),
    };
  }

  /** With other processes: adds up the nodes of this one, of this thread's chunks. */
  sumNodes(): void {
    for (const chunk of this.chunks) for (const { lo, hi } of this.open.share.nodes) this.sum(chunk, lo, hi);
  }

  /** The sum over all replicas and the update, of this thread's chunks; or the updates of its replicas, where these train alone. */
  updateChunks(): void {
    const { memory } = this.open;
    const [count, step, rate] = [this.header[COUNT]!, this.header[STEP_NUMBER]!, this.header[RATE]!];
    if (this.local && this.isLocal) {
      for (const replica of this.replicas) {
        const { from, to } = replicaRows(count, this.open.share.replicas, replica);
        if (from < to) this.local.step(replica - this.open.share.from, this.allRanges, this.update, { count: to - from, step, rate });
      }
      return;
    }
    const gradScale = count === 0 ? 0 : 1 / count; // a batch without rows has no gradient
    const { kernels } = this.arena;
    const { offset: slotsFrom } = slotRange(memory.own, this.layout.trainableLength);
    for (const { chunk, trained, isState } of this.updates) {
      const { share } = this.open;
      const isAlone = !this.open.isMember && share.to - share.from === share.replicas;
      const sum = isAlone ? this.sum(chunk, 0, share.replicas) : memory.gradients[0]! + chunk.offset * 4;
      for (const { offset, length, keepsWeight } of trained) {
        this.updatedElements += length;
        const [params, grad] = [memory.parameters + offset * 4, sum + (offset - chunk.offset) * 4];
        if (isState) {
          // Without rows the layers have computed no state: it stays as it is.
          if (count > 0) kernels.scaleInto(params, grad, length, gradScale);
        } else {
          const slots = memory.slots.map((pointer) => pointer + (offset - slotsFrom) * 4);
          this.update(this.arena, { params, grad, slots, count: length, step, rate, gradScale, keepsWeight });
        }
      }
    }
  }

  /** Adds the replicas of a node up in the vector of its first one. */
  private sum(chunk: Range, lo: number, hi: number, vectors = this.open.memory.gradients): number {
    const pointer = vectors[lo - this.open.share.from]! + chunk.offset * 4;
    if (this.isSummed(lo, hi)) return pointer;
    const middle = split(lo, hi);
    this.sum(chunk, lo, middle, vectors);
    this.arena.kernels.add(pointer, this.sum(chunk, middle, hi, vectors), chunk.length);
    return pointer;
  }

  /** Whether the sum of a node lies in the vector of its first replica already. */
  protected isSummed(lo: number, hi: number): boolean {
    return hi - lo === 1;
  }

  /** Where the engines keep their copy: behind the update, while the main thread prepares the next batch. */
  loadEarly(): void {
    if (!this.open.loadsEarly) return;
    this.loaded = this.version + 1;
    this.copy(this.parameters);
  }

  close(): void {
    this.engine.dispose();
  }
}

const updated = (chunks: readonly { readonly trained: readonly Range[]; readonly isState: boolean }[]): UpdatedRange[] =>
  chunks.flatMap(({ trained, isState }) => trained.map((range) => Object.assign({}, range, { isState })));
