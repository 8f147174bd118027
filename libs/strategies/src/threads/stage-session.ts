/**
 * One stage of a model in a compute thread (libs/engine/src/stages). The threads of all stages are a pipeline: each batch is cut into micro-batches, which go through
 * the stages one after the other, and whose gradients come back. A thread trains the variables of its stage alone.
 *
 * A stage in front of `ahead` others works through its micro-batches in the order that is known as one forward, one backward (Harlap et al.,
 * arXiv:1806.03377; as here, with an update after each batch: arXiv:2104.04473, section 2.2):
 *
 * | phase | what | how often |
 * |---|---|---|
 * | warm-up | passes a micro-batch on | min(ahead, micro-batches) |
 * | steady | passes the next one on, then takes the gradients of the oldest one that it has not taken | until all are passed on |
 * | cool-down | takes the gradients of the others | until all are taken |
 *
 * The last stage has nobody ahead: it takes the gradients of a micro-batch when it comes. Each stage adds the gradients of its micro-batches up in the order of the
 * reduction tree, as if each were the rows of a replica. So the bits are those of MirroredStrategy with as many replicas as micro-batches.
 *
 * Stages wait for each other at counters in shared memory, two for each boundary of each pipeline, which only rise:
 *
 * | counter | written by | meaning |
 * |---|---|---|
 * | PASSED | the stage in front | micro-batches whose tensor lies in the boundary |
 * | RETURNED | the stage behind | micro-batches whose gradient lies in the boundary; in a prediction those whose tensor was taken out |
 *
 * In each step or prediction they rise by all of its micro-batches, also when a stage fails or the step is left out: whoever waits goes on then, and looks whether
 * the step has failed. A prediction cuts its rows by `rowsAtOnce`, and a boundary has room for the tensors of a few such parts (pipeline.ts).
 *
 * Several pipelines may stand side by side, as replicas do: each has a thread for every stage, and micro-batches of its own. Threads of one stage share its
 * arena. A thread adds up the nodes of the reduction tree of its own pipeline. When all threads have done so, each adds the nodes of all pipelines, in its share of the
 * elements of the stage, and updates this share.
 */
import { createStageEngine, describeModel, describeStages, type Batch, type StageEngine } from '@paceline/engine';
import { Arena } from '@paceline/kernels';
import { layoutOfPart, ReductionTree, replicaRows, split, type Layout, type Node } from '@paceline/learning';
import { fieldLength } from '@paceline/spec';
import { STEP, waitFor } from './cells.js';
import type { ModelSession } from './model-session.js';
import {
  COUNT,
  FIRST_SET,
  headerOf,
  lossesOf,
  RATE,
  ROWS_AT_ONCE,
  SETS,
  STEP_NUMBER,
  VERSION,
  type BatchBuffers,
  type FromThread,
  type ModelMemory,
  type OpenModel,
  type OpenPipeline,
  type ToThread,
} from './protocol.js';
import {
  BOUNDARY_PARTS,
  boundaryRoom,
  COUNTERS,
  leavesOf,
  lossesOfStages,
  nodesOf,
  PASSED,
  RETURNED,
  roomOfPart,
  sumsOf,
  vectorsOf,
} from './pipeline.js';
import { undecayedOf } from '../update-rule.js';
import { joined, marked, shareOfChunk, type Range } from './ranges.js';
import { engineSpec } from './replica-session.js';
import { updateOf, type Update } from './updates.js';

/** The model, and its stages where it is cut. @throws ModelError */
export async function describe(
  message: Extract<ToThread, { kind: 'describe' }>,
): Promise<Pick<Extract<FromThread, { kind: 'ok' }>, 'description' | 'stages'>> {
  const { format, cuts } = message;
  const spec = engineSpec(message.spec);
  if (!cuts) return { description: await describeModel(spec, format) };
  const { description, stages } = await describeStages(spec, format, cuts);
  return {
    description,
    stages: stages.map(({ layers, variables, passed, end }) => ({ layers, variables, passed: passed ? sizeOf(passed) : 0, end })),
  };
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Rows [from, to) of a batch. */
type Rows = ReturnType<typeof replicaRows>;

export class StageSession implements ModelSession {
  readonly isLocal = false;
  readonly isServed = false;
  readonly isSharded = false;
  /** The one that the stages of this thread's pipeline compute together. */
  readonly replicas: readonly number[];
  private readonly headers: readonly Float64Array[];
  private readonly losses: readonly Float64Array[];
  private readonly buffers: (BatchBuffers | undefined)[] = [];
  private set = FIRST_SET;
  private readonly memory: ModelMemory;
  private readonly arena: Arena;
  private readonly parameters: Float32Array;
  private readonly flow: Int32Array;
  private readonly update: Update;
  /** What of the chunks is this thread's to update. */
  private updates: { readonly own: Range; readonly trained: readonly Range[]; readonly isState: boolean }[] = [];
  /** The nodes of each pipeline, and where their sums lie. */
  private readonly sums: readonly { readonly nodes: readonly Node[]; readonly pointers: Int32Array }[];
  /** Vectors for the gradients of this thread. */
  private readonly gradientVectors: readonly number[];
  /** What went over the boundaries in all steps and predictions before this one. */
  private before = { passed: 0, returned: 0 };
  private loaded = -1;
  private version = -1;
  /** The micro-batch that is computed now, in a step. */
  microBatch: number | undefined;

  /** @param index of the stage @param pipelineIndex which of the pipelines it belongs to @param layout of the variables of the stage */
  private constructor(
    private readonly open: OpenModel,
    private readonly pipeline: OpenPipeline,
    private readonly index: number,
    private readonly pipelineIndex: number,
    private readonly layout: Layout,
    private readonly engine: StageEngine,
    private readonly hasFailed: () => boolean,
  ) {
    this.memory = pipeline.memories[index]!;
    this.arena = Arena.attach(this.memory.arena);
    const sets = Array.from({ length: SETS }, (_, set) => set);
    this.headers = sets.map((set) => headerOf(this.memory.header, set));
    this.losses = sets.map((set) => lossesOf(this.memory.losses, set, lossesOfStages(pipeline)));
    this.parameters = this.arena.f32(this.memory.parameters, layout.totalLength);
    this.flow = new Int32Array(pipeline.flow);
    this.replicas = [pipelineIndex];
    this.sums = Array.from({ length: pipeline.pipelines }, (_, p) => ({
      nodes: nodesOf(pipeline, p),
      pointers: sumsOf(pipeline.sums, pipeline, index, p),
    }));
    const vectors = vectorsOf(pipeline);
    const from = vectors.slice(0, pipelineIndex).reduce((sum, count) => sum + count, 0);
    this.gradientVectors = this.memory.gradients.slice(from, from + vectors[pipelineIndex]!);
    this.update = updateOf(open.rule, this.memory.zeros);
    this.freeze([]);
  }

  /** @param thread its number: those of a pipeline come one after the other @param hasFailed whether a stage has failed in the present step or prediction */
  static async open(open: OpenModel, pipeline: OpenPipeline, thread: number, hasFailed: () => boolean): Promise<StageSession> {
    const [pipelineIndex, index] = [Math.floor(thread / pipeline.stages), thread % pipeline.stages];
    const layout = layoutOfPart(open.description, pipeline.variables[index]!);
    const engine = await createStageEngine({ spec: engineSpec(open.spec), format: open.format, layout, cuts: pipeline, index });
    return new StageSession(open, pipeline, index, pipelineIndex, layout, engine, hasFailed);
  }

  useBuffers(buffers: BatchBuffers, set = FIRST_SET): void {
    this.buffers[set] = buffers;
  }

  useSet(set: number): void {
    this.set = set;
    this.version = this.header[VERSION]!;
  }

  freeze(paths: readonly string[]): void {
    const frozen = new Set(paths);
    const variables = this.layout.variables.filter(({ path, section }) => section === 'state' || !frozen.has(path));
    const trained = marked(variables, undecayedOf(this.open.rule));
    const whole = { offset: 0, length: this.layout.totalLength };
    this.updates = this.layout.chunks.flatMap((chunk) => {
      const own = shareOfChunk(chunk, whole, this.pipelineIndex, this.pipeline.pipelines);
      return own ? [{ own, trained: joined(own, trained), isState: chunk.section === 'state' }] : [];
    });
  }

  load(): void {
    if (this.version === this.loaded) return;
    this.loaded = this.version;
    this.engine.load(this.parameters);
  }

  loadEarly(): void {
    if (!this.open.loadsEarly) return;
    this.loaded = this.version + 1;
    this.engine.load(this.parameters);
  }

  replica(_: number, moved: () => void): void {
    const { microBatches } = this.pipeline;
    const ahead = Math.min(this.pipeline.stages - 1 - this.index, microBatches);
    this.losses[this.set]!.fill(0, this.lossAt(0), this.lossAt(microBatches));
    const free = [...this.gradientVectors];
    const tree = new ReductionTree<number>(leavesOf(this.pipeline), {
      add: (into, from) => this.arena.kernels.add(into, from, this.layout.totalLength),
      release: (vector) => free.push(vector),
    });
    let taken = 0;
    const take = (): void => {
      const vector = free.pop()!;
      this.gradients(taken, vector);
      const leaf = this.leafOf(taken++);
      tree.insert({ lo: leaf, hi: leaf + 1 }, vector);
      moved();
    };
    for (let microBatch = 0; microBatch < microBatches && !this.hasFailed(); microBatch++) {
      if (!this.isLast) {
        this.pass(microBatch);
        moved();
      }
      if (microBatch >= ahead) take();
    }
    while (taken < microBatches && !this.hasFailed()) take();
    if (this.hasFailed()) return;
    const { nodes, pointers } = this.sums[this.pipelineIndex]!;
    for (const [i, node] of nodes.entries()) pointers[i] = tree.take(node)!;
  }

  predict(_: number, moved: () => void): void {
    const rowsAtOnce = this.header[ROWS_AT_ONCE]!;
    const { passed, returned } = this.before;
    const own = this.ownRows();
    const room = this.pipelineIndex * boundaryRoom(this.pipeline, this.header[COUNT]!, rowsAtOnce);
    for (let [part, from] = [0, own.from]; from < own.to; part++, from += rowsAtOnce) {
      const rows = { from, to: Math.min(from + rowsAtOnce, own.to) };
      const slot = room + roomOfPart(part, rowsAtOnce);
      const inBoundary = { from: slot, to: slot + rows.to - from };
      this.await(this.index - 1, PASSED, passed + part + 1);
      if (!this.isLast) this.await(this.index, RETURNED, returned + part + 1 - BOUNDARY_PARTS);
      if (this.hasFailed()) return;
      const batch = this.batch(rows, inBoundary);
      this.engine.predict(batch, this.isLast ? batch.outputs! : [this.boundary(this.index, inBoundary, 'values')]);
      this.tell(this.index - 1, RETURNED, returned + part + 1);
      this.tell(this.index, PASSED, passed + part + 1);
      moved();
    }
  }

  ended(kind: number): void {
    this.engine.forget();
    this.microBatch = undefined;
    const { passed, returned } = this.before;
    const own = this.ownRows();
    const parts = kind === STEP ? this.pipeline.microBatches : Math.ceil((own.to - own.from) / this.header[ROWS_AT_ONCE]!);
    this.before = { passed: (passed + parts) | 0, returned: (returned + parts) | 0 };
    this.tell(this.index, PASSED, this.before.passed);
    this.tell(this.index - 1, RETURNED, this.before.returned);
  }

  updateChunks(): void {
    const { memory } = this;
    const [count, step, rate] = [this.header[COUNT]!, this.header[STEP_NUMBER]!, this.header[RATE]!];
    const gradScale = count === 0 ? 0 : 1 / count; // a batch without rows has no gradient
    // A loss may be no number while its slope is one: such a step must not look like others. Other strategies say so in the first element of the model.
    const isFirst = this.layout.variables[0]!.path === this.open.description.variables[0]!.path;
    const isMarked = isFirst && !this.losses[this.set]!.every(Number.isFinite);
    for (const { own, trained, isState } of this.updates) {
      const sum = this.sum(own, 0, leavesOf(this.pipeline));
      if (isMarked && own.offset === 0) this.arena.f32(sum, 1)[0] = Number.NaN;
      for (const { offset, length, keepsWeight } of trained) {
        const [params, grad] = [memory.parameters + offset * 4, sum + (offset - own.offset) * 4];
        if (isState) {
          // Without rows the layers have computed no state: it stays as it is.
          if (count > 0) this.arena.kernels.scaleInto(params, grad, length, gradScale);
        } else {
          const slots = memory.slots.map((pointer) => pointer + offset * 4);
          this.update(this.arena, { params, grad, slots, count: length, step, rate, gradScale, keepsWeight });
        }
      }
    }
  }

  /** Adds up what the pipelines have of a node, over some elements, in the vector of its first part. */
  private sum(own: Range, lo: number, hi: number): number {
    const { nodes, pointers } = this.sums[Math.floor(lo / this.pipeline.microBatches)]!;
    const found = nodes.findIndex((node) => node.lo === lo && node.hi === hi);
    if (found >= 0) return pointers[found]! + own.offset * 4;
    const middle = split(lo, hi);
    const into = this.sum(own, lo, middle);
    this.arena.kernels.add(into, this.sum(own, middle, hi), own.length);
    return into;
  }

  close(): void {
    this.engine.dispose();
  }

  private get header(): Float64Array {
    return this.headers[this.set]!;
  }

  private get isLast(): boolean {
    return this.index === this.pipeline.stages - 1;
  }

  /** Gives the next stage what this one makes of a micro-batch. */
  private pass(microBatch: number): void {
    this.microBatch = this.leafOf(microBatch);
    const rows = this.rowsOf(microBatch);
    this.await(this.index - 1, PASSED, this.before.passed + microBatch + 1);
    if (this.hasFailed()) return;
    if (rows.from < rows.to) this.engine.pass(this.keyOf(microBatch), this.batch(rows), this.boundary(this.index, rows, 'values'));
    this.tell(this.index, PASSED, this.before.passed + microBatch + 1);
  }

  /** Takes the gradients of a micro-batch, and gives the stage before that of what came from there. */
  private gradients(microBatch: number, vector: number): void {
    this.microBatch = this.leafOf(microBatch);
    const rows = this.rowsOf(microBatch);
    if (this.isLast) this.await(this.index - 1, PASSED, this.before.passed + microBatch + 1);
    else this.await(this.index, RETURNED, this.before.returned + microBatch + 1);
    if (this.hasFailed()) return;
    if (rows.from === rows.to) this.arena.kernels.fill(vector, this.layout.totalLength, 0);
    else {
      const out = this.arena.f32(vector, this.layout.totalLength);
      const passed = this.isLast ? undefined : this.boundary(this.index, rows, 'gradients');
      const received = this.index > 0 ? this.boundary(this.index - 1, rows, 'gradients') : undefined;
      const [loss] = this.engine.gradients(this.keyOf(microBatch), this.batch(rows), { out, passed, received });
      this.losses[this.set]![this.lossAt(microBatch)] = loss!;
    }
    this.tell(this.index - 1, RETURNED, this.before.returned + microBatch + 1);
  }

  private lossAt(microBatch: number): number {
    return (this.isLast ? 0 : this.index + 1) * leavesOf(this.pipeline) + this.leafOf(microBatch);
  }

  private keyOf(microBatch: number): { round: number; replica: number } {
    return { round: this.header[STEP_NUMBER]! - 1, replica: this.leafOf(microBatch) };
  }

  /** The number of a micro-batch of this pipeline among those of all. */
  private leafOf(microBatch: number): number {
    return this.pipelineIndex * this.pipeline.microBatches + microBatch;
  }

  private rowsOf(microBatch: number): Rows {
    return replicaRows(this.header[COUNT]!, leavesOf(this.pipeline), this.leafOf(microBatch));
  }

  /** Rows that this pipeline predicts. */
  private ownRows(): Rows {
    return replicaRows(this.header[COUNT]!, this.pipeline.pipelines, this.pipelineIndex);
  }

  /** What the engine of the stage takes of the rows, whose tensor lies in the boundary at `inBoundary`. */
  private batch(rows: Rows, inBoundary = rows): Batch {
    const { inputs, targets, weights, outputs } = this.buffers[this.set]!;
    const { format, description } = this.open;
    const own = this.engine.fields.map((field) => part(inputs[field]!, rows, fieldLength(format.inputs[field]!)));
    return {
      count: rows.to - rows.from,
      inputs: this.index > 0 ? [this.boundary(this.index - 1, inBoundary, 'values'), ...own] : own,
      targets: this.isLast ? targets.map((buffer, i) => part(buffer, rows, fieldLength(format.targets[i]!))) : [],
      weights: part(weights, rows, 1),
      outputs: this.isLast ? outputs.map((buffer, i) => part(buffer, rows, fieldLength(description.outputs[i]!))) : [],
    };
  }

  private boundary(boundary: number, rows: Rows, what: 'values' | 'gradients'): Float32Array {
    const { stage } = this.engine;
    return part(
      this.buffers[this.set]!.boundaries![boundary]![what],
      rows,
      sizeOf((boundary === this.index ? stage.passed : stage.received)!),
    );
  }

  /** In front of the first stage and behind the last one nobody waits. */
  private await(boundary: number, counter: number, target: number): void {
    if (boundary >= 0) waitFor(this.flow, this.counterOf(boundary, counter), target);
  }

  private tell(boundary: number, counter: number, value: number): void {
    if (boundary < 0 || boundary === this.pipeline.stages - 1) return;
    const at = this.counterOf(boundary, counter);
    Atomics.store(this.flow, at, value);
    Atomics.notify(this.flow, at);
  }

  private counterOf(boundary: number, counter: number): number {
    return (this.pipelineIndex * (this.pipeline.stages - 1) + boundary) * COUNTERS + counter;
  }
}

const part = (buffer: SharedArrayBuffer, { from, to }: Rows, floats: number): Float32Array =>
  new Float32Array(buffer, from * floats * 4, (to - from) * floats);
