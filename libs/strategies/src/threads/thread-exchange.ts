/** Exchange over the compute threads of this process: all gradients lie in one shared memory, nothing is sent. */
import { crc32 } from 'node:zlib';
import { createLayout, replicaRows, type Layout } from '@paceline/learning';
import { fieldLength, type ModelDescription } from '@paceline/spec';
import { ThreadError } from '../errors.js';
import type { Exchange, FlatValues, HostBatch, HostRows, PreparedStep, StepResult, Trainer, TrainingPlan } from '../exchange.js';
import type { LocalReplicas } from '../replicas/distributed-dataset.js';
import type { Encoded, ReplicaArray } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { AgreedVersion } from './agreed-version.js';
import { BufferSets } from './buffer-sets.js';
import { FunctionCalls } from './function-calls.js';
import { initialSlots } from '../update-rule.js';
import type { NextView } from '@paceline/collectives';
import { trainedOf, type GroupThread } from '../members/group-link.js';
import { MemberCourse } from '../members/course.js';
import { ViewChanges, type LaidOut } from '../members/view-changes.js';
import {
  BEGINS,
  COUNT,
  FIRST_SET,
  GOES_ON,
  headerOf,
  LOCAL_STEP,
  lossesOf,
  PREDICTIONS_SET,
  RATE,
  ROWS,
  ROWS_AT_ONCE,
  SETS,
  STEP_NUMBER,
  TAKES_PARAMETERS,
  TAKES_SLOTS,
  TOGETHER,
  VERSION,
  type BatchBuffers,
  type FromThread,
  type ModelMemory,
  type Pipeline,
  type Share,
} from './protocol.js';
import { isStreaming, shareOf, type ThreadExchangeOptions } from './exchange-options.js';
import { outcome, predictionOf, readable, stepOf } from './past-steps.js';
import { boundaryRoom, lossesOfStages } from './pipeline.js';
import { openedStages, placedStages } from './stage-memory.js';
import { PREDICT, STEP } from './cells.js';
import { okOf, replicaError } from './answers.js';
import { fragmentCourse, type FragmentCourse } from './fragments.js';
import { fragmentLengths, inOneArena, inPlace, noParts, type Described, type KeptSlots, type Laid } from './laid-out.js';
import { PARAMETERS } from './local-updates.js';
import { ThreadPool } from './thread-pool.js';

export class ThreadExchange implements Exchange {
  readonly replicas: number;
  readonly isShared: boolean;
  private readonly pool: ThreadPool;
  private readonly calls: FunctionCalls;
  private readonly views: ViewChanges | undefined;
  private models = 0;

  constructor(private readonly options: ThreadExchangeOptions) {
    const { threads, replicas, deadlineMs, group, devices } = options;
    this.replicas = replicas;
    this.isShared = group !== undefined;
    this.pool = new ThreadPool({ threads, deadlineMs, group, devices });
    this.calls = new FunctionCalls(this.pool, shareOf(options), group);
    if (group) this.views = new ViewChanges(this.pool, group);
    if (group?.continues) group.course = new MemberCourse(this.pool, group, (view) => this.views!.layOut(view));
  }

  get course(): MemberCourse | undefined {
    return this.options.group?.course;
  }

  get local(): LocalReplicas {
    const { group } = this.options;
    const { replicas, from, to } = shareOf(this.options);
    return { replicas, from, to, process: group?.self ?? 0, processes: group?.processes ?? 1 };
  }

  call(fn: NamedFunction, argsOf: (replica: number) => readonly Encoded[]): Encoded[] {
    this.views?.refuse('a function that runs in replicas');
    this.course?.close('a function that ran in replicas');
    return this.calls.call(fn, argsOf);
  }

  shareValues(what: string, values: readonly ReplicaArray[]): readonly ReplicaArray[] {
    const { group } = this.options;
    if (!group) return values;
    return this.views!.orEnd(() => group.shareValues(this.pool, what, values));
  }

  open(plan: TrainingPlan): Trainer {
    const { pool, options } = this;
    const [answer] = pool.ask({ kind: 'describe', spec: plan.spec, format: plan.format, cuts: options.pipeline }, 1);
    const { description, stages } = okOf(answer);
    if (!description) throw new ThreadError('a compute thread described no model');
    const described = { description, stages };
    const { views } = this;
    const number = this.models++;
    if (!views) return new ThreadTrainer(pool, plan, described, options, number);
    return views.opened(() => new ThreadTrainer(pool, plan, described, options, number, views));
  }

  async dispose(): Promise<void> {
    await this.pool.dispose();
    await this.options.group?.dispose();
  }
}

class ThreadTrainer implements Trainer, LaidOut {
  readonly description: ModelDescription;
  readonly stages: readonly (readonly string[])[];
  readonly layout: Layout;
  readonly versions = new AgreedVersion();
  private common: FlatValues;
  /** Steps that replicas have taken alone since they were averaged. */
  private alone = 0;
  /** Replicas begin the next step with the common values. */
  private begins = true;
  /** The common slots were written to: where replicas go on with their own values, they take these over. */
  private slotsAreNew = false;
  /** Replicas begin the next step with the common parameters and their own slots. */
  private takesParameters = false;
  /** Where slots stay with their replica: whether the common ones are those of an earlier step. */
  private slotsAreOld = false;
  private readonly local: ThreadExchangeOptions['local'];
  /** Where replicas exchange a fragment at a time. */
  private readonly fragments: FragmentCourse | undefined;
  private kept: KeptSlots;
  private share: Share;
  private readonly slotCount: number;
  private readonly headers: readonly Float64Array[];
  private readonly losses: readonly Float64Array[];
  private readonly floats: { readonly inputs: number[]; readonly targets: number[]; readonly outputs: number[] };
  readonly group: GroupThread | undefined;
  private readonly pipeline: Pipeline | undefined;
  private readonly buffers: BufferSets;
  /** The set of the batch that was prepared last. */
  private set = FIRST_SET;
  /** Number of the last step that was started. */
  lastStep = 0;
  readonly prepare: Trainer['prepare'];
  private frozen: readonly string[] = [];
  private memory: ModelMemory;
  /** What is laid out for another view, until its state is here. */
  private next: Laid | undefined;

  constructor(
    readonly pool: ThreadPool,
    private readonly plan: TrainingPlan,
    { description, stages = [] }: Described,
    private readonly options: ThreadExchangeOptions,
    readonly model: number,
    private readonly views?: ViewChanges,
  ) {
    this.description = description;
    this.stages = stages.map(({ layers }) => layers);
    this.layout = createLayout(description);
    const { group, local, pipeline } = options;
    this.group = group;
    this.pipeline = pipeline;
    this.local = local;
    const share = shareOf(options);
    this.share = share;
    const slots = initialSlots(plan.rule);
    this.slotCount = slots.length;
    const fragments = local && isStreaming(local) ? local.fragments : 0;
    const cut = fragmentLengths(this.layout, fragments);
    const placement = group?.place(pool, model, this.layout, slots.length);
    const staged = pipeline && placedStages(this.layout, description, stages, pipeline, { share, slots });
    const { memory, common, kept } = staged
      ? { memory: staged.memories[0]!, common: staged.parameters, kept: inPlace(staged.slots) }
      : inOneArena(this.layout, { share, slots, placement, isLocal: local !== undefined, fragmentLength: Math.max(0, ...cut) });
    this.common = common;
    this.kept = kept;
    this.memory = memory;
    const sets = Array.from({ length: SETS }, (_, set) => set);
    this.headers = sets.map((set) => headerOf(memory.header, set));
    this.losses = sets.map((set) => lossesOf(memory.losses, set, pipeline ? lossesOfStages(pipeline) : share.replicas));
    if (!group && !local) this.prepare = (batch) => this.prepared(batch, (this.set = 1 - this.set));
    this.floats = {
      inputs: plan.format.inputs.map(fieldLength),
      targets: plan.format.targets.map(fieldLength),
      outputs: description.outputs.map(fieldLength),
    };
    this.buffers = new BufferSets({ ...this.floats, boundaries: stages.slice(0, -1).map(({ passed }) => passed) }, (buffers, set) => {
      this.ask({ kind: 'buffers', model, buffers, set });
      group?.useBuffers(pool, model, buffers);
    });
    if (local && fragments > 0) this.fragments = fragmentCourse(local, this, (message) => this.ask(message));
    const opening = staged && openedStages(pipeline, stages, staged.memories);
    const answers = pool.ask({ kind: 'open', ...plan, ...this.opened(memory, fragments), pipeline: opening });
    try {
      for (const answer of answers) okOf(answer);
      group?.open(pool, this.openedInGroup(memory, cut));
    } catch (error) {
      this.close(); // some threads have opened it
      throw error;
    }
  }

  private opened(memory: ModelMemory, fragments: number) {
    const { model, description, share, options } = this;
    const { updaters, loadsEarly, local, group } = options;
    return { model, description, memory, updaters, loadsEarly, share, outer: local?.outer, fragments, isMember: group !== undefined };
  }

  private openedInGroup(memory: ModelMemory, fragments: readonly number[]) {
    const { model, plan, layout, floats } = this;
    const { totalLength, trainableLength } = layout;
    return { model, plan, totalLength, trainableLength, variables: trainedOf(layout), memory, fragments, outputs: floats.outputs };
  }

  /** Members were lost: this process has other replicas, and the state of the source of the view. What lay here before stays until `commit`. */
  layOut(view: NextView): void {
    const { pool, model, layout, plan, memory: before } = this;
    const group = this.group!;
    this.share = group.share;
    const slots = initialSlots(plan.rule);
    const placing = { share: this.share, slots, placement: group.place(pool, model, layout, slots.length), isLocal: false };
    const laid = inOneArena(layout, placing);
    const memory = { ...laid.memory, header: before.header, losses: before.losses };
    const values = [this.common, ...this.kept.whole(noParts)];
    for (const [i, into] of [laid.common, ...laid.kept.whole(noParts)].entries()) into.set(values[i]!.slice(0, layout.totalLength), 0);
    this.ask({ kind: 'close', model });
    this.ask({ kind: 'open', ...plan, ...this.opened(memory, 0) });
    if (this.frozen.length > 0) this.ask({ kind: 'freeze', model, paths: this.frozen });
    group.open(pool, { ...this.openedInGroup(memory, []), isAgain: true });
    this.buffers.tellAgain();
    group.takeOverFrom(pool, model, this.lastStep, view);
    this.next = { ...laid, memory };
  }

  /** What is laid out holds from now on. @param isDone what was in hand */
  commit(isDone: boolean): void {
    this.versions.moved(isDone);
    Object.assign(this, this.next, { next: undefined });
  }

  get course(): MemberCourse | undefined {
    return this.group?.course;
  }

  get version(): number {
    return this.versions.number;
  }

  get parameters(): FlatValues {
    this.settle();
    this.average();
    return readable(this.common, 'a weight', this);
  }

  /**
   * What replicas have learned alone becomes common.
   * @param wantsSlots where they stay with their replica, common slots are made for whoever reads them
   */
  private average(wantsSlots = false): void {
    if (!this.local || !this.pool.isOpen) return;
    const keepsParameters = this.fragments !== undefined || this.local.outer.name === 'elastic';
    const keepsSlots = keepsParameters || this.local.keepsSlots;
    const slots = Array.from({ length: this.slotCount }, (_, s) => 1 + s);
    const takesSlots = keepsSlots ? wantsSlots && this.slotsAreOld : this.alone > 0;
    this.fragments?.flush();
    const vectors = [...(this.alone > 0 ? [PARAMETERS] : []), ...(takesSlots ? slots : [])];
    if (keepsSlots && !keepsParameters && this.alone > 0) this.takesParameters = true;
    this.alone = 0;
    if (takesSlots) this.slotsAreOld = false;
    if (!keepsSlots) this.begins = true;
    const { model, group } = this;
    if (vectors.length === 0) return;
    if (!group) return this.ask({ kind: 'average', model, vectors, part: 'all' });
    for (const vector of vectors) {
      this.ask({ kind: 'average', model, vectors: [vector], part: 'collect' });
      group.average(this.pool, model, vector, this.lastStep);
      this.ask({ kind: 'average', model, vectors: [vector], part: 'take' });
    }
  }

  touch(): void {
    this.versions.touch();
    this.begins = true;
  }

  touchSlots(): void {
    this.slotsAreNew = true;
  }

  get slots(): readonly FlatValues[] {
    this.settle();
    this.average(true);
    const slots = this.kept.whole((into) => this.group!.slots(this.pool, this.model, this.lastStep + 1, into));
    return slots.map((values) => readable(values, 'the state of an optimizer', this));
  }

  freeze(paths: readonly string[]): void {
    this.frozen = paths;
    this.ask({ kind: 'freeze', model: this.model, paths });
    const said = (): void => this.group?.agree(this.pool, `what is frozen in model ${this.model}`, paths);
    this.versions.during('freezes', () => this.done(said));
  }

  step(batch: HostBatch, step: number, rate: number): StepResult {
    const taken = (): StepResult => this.prepared(batch, FIRST_SET).start(step, rate)();
    const live = (): StepResult =>
      this.done(
        taken,
        outcome(step, () => this.resultOf(batch.count, FIRST_SET)),
      );
    const { course, model } = this;
    if (!course) return live();
    this.agree(step);
    return stepOf(course, { model, step, rate, batch }, live, () => {
      this.lastStep = step;
      this.kept.unstage();
      this.versions.agree();
    });
  }

  /** An operation of all processes, which is done again, or has the outcome that others had, when one of them was lost in it. */
  private done<T>(operation: () => T, outcome?: (failures: readonly FromThread[]) => T): T {
    return this.views ? this.views.done(this, operation, outcome) : operation();
  }

  private prepared(batch: HostBatch, set: number): PreparedStep {
    const { count } = batch;
    const buffers = this.buffers.of(count, set);
    const [inputs, targets] = [this.viewsOf('inputs', buffers, count), this.viewsOf('targets', buffers, count)];
    batch.inputs.forEach((fill, i) => fill(inputs[i]!));
    batch.targets.forEach((fill, i) => fill(targets[i]!));
    const weights = new Float32Array(buffers.weights, 0, count);
    if (batch.weights) batch.weights(weights);
    else weights.fill(1);
    const start = (step: number, rate: number) => {
      const end = this.begin(batch, set, step, rate);
      return (): StepResult => {
        const failures = end();
        this.views?.check();
        if (failures.length > 0) throw replicaError(failures, step - 1);
        if (this.local && this.headers[set]![LOCAL_STEP] !== TOGETHER) return this.steppedAlone(batch, this.local.steps, buffers);
        this.begins = true; // what replicas have of their own is older than this step
        return this.resultOf(count, set);
      };
    };
    return { start };
  }

  /** Of all rows: losses and outputs lie in their places. */
  private resultOf(count: number, set: number): StepResult {
    const buffers = this.buffers.of(count, set);
    const loss = this.losses[set]!.reduce((sum, value) => sum + value, 0) / Math.max(1, count);
    const [targets, outputs] = [this.viewsOf('targets', buffers, count), this.viewsOf('outputs', buffers, count)];
    return { loss, rows: { from: 0, to: count }, targets, outputs };
  }

  private begin({ count, rowsDigest = 0 }: HostBatch, set: number, step: number, rate: number): () => FromThread[] {
    const header = this.headers[set]!;
    this.lastStep = step;
    header[COUNT] = count;
    header[STEP_NUMBER] = step;
    header[RATE] = rate;
    header[ROWS] = rowsDigest;
    this.agree(step);
    this.kept.unstage();
    header[VERSION] = this.version;
    const isTogether = this.local !== undefined && step <= this.local.syncSteps;
    if (this.begins || isTogether) this.average(true); // slots that nobody has written to stay what they are
    if (isTogether) this.group?.awaitFragment(this.pool);
    header[LOCAL_STEP] = isTogether ? TOGETHER : this.takeover();
    this.versions.agree(); // what is read from now on waits for the step
    return this.pool.begin(STEP, this.model, set);
  }

  /** What replicas that train alone take over before the next step. */
  private takeover(): number {
    if (this.begins || (this.takesParameters && this.slotsAreNew)) return BEGINS;
    if (this.takesParameters) return TAKES_PARAMETERS;
    return this.slotsAreNew ? TAKES_SLOTS : GOES_ON;
  }

  private settle(): void {
    if (this.pool.isOpen) this.pool.settle();
  }

  /** Where replicas train alone nothing is heard of those of other processes: the result is that of the rows of this one's. */
  private steppedAlone({ count }: HostBatch, localSteps: number, buffers: BatchBuffers): StepResult {
    this.begins = this.takesParameters = this.slotsAreNew = false;
    this.slotsAreOld = true;
    if (this.fragments) this.fragments.stepped();
    else if (++this.alone === localSteps) this.average();
    const { from, to, replicas } = this.share;
    const rows = { from: replicaRows(count, replicas, from).from, to: replicaRows(count, replicas, to - 1).to };
    const sum = this.losses[FIRST_SET]!.subarray(from, to).reduce((total, value) => total + value, 0);
    const own = (kind: 'targets' | 'outputs'): Float32Array[] =>
      this.viewsOf(kind, buffers, rows.to).map((values, i) => values.subarray(rows.from * this.floats[kind][i]!));
    return { loss: sum / (rows.to - rows.from), rows, targets: own('targets'), outputs: own('outputs') };
  }

  predict(rows: HostRows, step: number): Float32Array[] {
    const others = outcome(step, () => this.viewsOf('outputs', this.buffers.of(rows.count, FIRST_SET), rows.count));
    const live = (): Float32Array[] => this.done(() => this.predicted(rows, step), others);
    const { course, model } = this;
    if (!course) return live();
    this.agree(step);
    return predictionOf(course, { model, step, count: rows.count, floats: this.floats.outputs }, live);
  }

  private predicted({ count, inputs: fills, rowsAtOnce }: HostRows, step: number): Float32Array[] {
    this.settle();
    const { pipeline } = this;
    const set = this.prepare ? PREDICTIONS_SET : FIRST_SET;
    const buffers = this.buffers.of(count, set, pipeline ? pipeline.pipelines * boundaryRoom(pipeline, count, rowsAtOnce) : 0);
    const inputs = this.viewsOf('inputs', buffers, count);
    fills.forEach((fill, i) => fill(inputs[i]!));
    const header = this.headers[set]!;
    this.lastStep = step;
    header[COUNT] = count;
    header[STEP_NUMBER] = step;
    header[ROWS_AT_ONCE] = rowsAtOnce;
    // Each process answers for a part of the rows: answers for other rows would not be noticed in them.
    header[ROWS] = this.group ? inputs.reduce((sum, values) => crc32(new Uint8Array(values.buffer, 0, values.byteLength), sum), 0) : 0;
    this.agree(step);
    this.average();
    this.group?.awaitFragment(this.pool); // one of another model
    header[VERSION] = this.version;
    const failures = this.pool.compute(PREDICT, this.model, set);
    this.views?.check();
    if (failures.length > 0) throw replicaError(failures, step - 1);
    return this.viewsOf('outputs', buffers, count);
  }

  private viewsOf(kind: 'inputs' | 'targets' | 'outputs', buffers: BatchBuffers, count: number): Float32Array[] {
    return buffers[kind].map((buffer, i) => new Float32Array(buffer, 0, count * this.floats[kind][i]!));
  }

  close(): void {
    this.views?.forget(this);
    if (!this.pool.isOpen) return;
    this.ask({ kind: 'close', model: this.model });
    this.group?.close(this.pool, this.model);
  }

  /** All processes take the weights of the first one, where somebody has set some. */
  private agree(step: number): void {
    const { group } = this;
    if (!group || this.versions.isAgreed) return;
    this.versions.during('takes over', () => this.done(() => group.takeOver(this.pool, this.model, step, this.kept.staged())));
    this.versions.agree();
  }

  private ask(message: Parameters<ThreadPool['ask']>[0]): void {
    for (const answer of this.pool.ask(message)) okOf(answer);
  }
}
