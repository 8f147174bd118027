/** Exchange over the compute threads of this process: all gradients lie in one shared memory, nothing is sent. */
import { Arena, type SharedMemory } from '@paceline/kernels';
import { createLayout, type Layout } from '@paceline/learning';
import { fieldLength, LIMITS, type ModelDescription } from '@paceline/spec';
import { ArgumentError, ReplicaError, ThreadError, UnsupportedError } from '../errors.js';
import type { Exchange, HostBatch, StepResult, Trainer, TrainingPlan } from '../exchange.js';
import { initialSlots } from '../update-rule.js';
import type { GroupThread } from '../members/group-link.js';
import {
  COUNT,
  HEADER,
  RATE,
  ROWS,
  STEP_NUMBER,
  VERSION,
  type BatchBuffers,
  type FromThread,
  type ModelMemory,
  type Share,
} from './protocol.js';
import { ThreadPool } from './thread-pool.js';

export interface ThreadExchangeOptions {
  readonly threads: number;
  readonly replicas: number;
  readonly deadlineMs: number;
  /** Threads that share sums and updates by ranges of chunks. */
  readonly updaters: number;
  /** Engines take the new parameters at the end of a step, rather than at the beginning of the next. */
  readonly loadsEarly: boolean;
  /** Other processes that train the same models; `replicas` are those of all. */
  readonly group?: GroupThread;
}

export class ThreadExchange implements Exchange {
  readonly replicas: number;
  readonly isShared: boolean;
  private readonly pool: ThreadPool;
  private models = 0;

  constructor(private readonly options: ThreadExchangeOptions) {
    const { threads, replicas, deadlineMs, group } = options;
    this.replicas = replicas;
    this.isShared = group !== undefined;
    this.pool = new ThreadPool({ threads, deadlineMs, group });
  }

  open(plan: TrainingPlan): Trainer {
    const { pool, options } = this;
    const [answer] = pool.ask({ kind: 'describe', spec: plan.spec, format: plan.format }, 1);
    const { description } = okOf(answer);
    if (!description) throw new ThreadError('a compute thread described no model');
    return new ThreadTrainer(pool, plan, description, options, this.models++);
  }

  async dispose(): Promise<void> {
    await this.pool.dispose();
    await this.options.group?.dispose();
  }
}

class ThreadTrainer implements Trainer {
  readonly layout: Layout;
  readonly parameters: Float32Array;
  readonly slots: readonly Float32Array[];
  version = 0;
  private readonly header: Float64Array;
  private readonly losses: Float64Array;
  private readonly floats: { readonly inputs: number[]; readonly targets: number[]; readonly outputs: number[] };
  private readonly group: GroupThread | undefined;
  /** The version that all processes have. */
  private agreed = -1;
  private buffers: BatchBuffers | undefined;
  private capacity = 0;

  constructor(
    private readonly pool: ThreadPool,
    plan: TrainingPlan,
    readonly description: ModelDescription,
    options: ThreadExchangeOptions,
    private readonly model: number,
  ) {
    this.layout = createLayout(description);
    const { group } = options;
    this.group = group;
    const share: Share = group?.share ?? {
      replicas: options.replicas,
      from: 0,
      to: options.replicas,
      nodes: [{ lo: 0, hi: options.replicas }],
    };
    const { arena, memory } = placed(this.layout, share, initialSlots(plan.rule), group?.scratchLength(this.layout.totalLength) ?? 0);
    this.parameters = arena.f32(memory.parameters, this.layout.totalLength);
    this.slots = memory.slots.map((pointer) => arena.f32(pointer, this.layout.trainableLength));
    this.header = new Float64Array(memory.header);
    this.losses = new Float64Array(memory.losses);
    this.floats = {
      inputs: plan.format.inputs.map(fieldLength),
      targets: plan.format.targets.map(fieldLength),
      outputs: description.outputs.map(fieldLength),
    };
    const { updaters, loadsEarly } = options;
    const answers = pool.ask({ kind: 'open', ...plan, model, description, memory, updaters, loadsEarly, share });
    try {
      for (const answer of answers) okOf(answer);
      const { totalLength, trainableLength } = this.layout;
      group?.open(pool, { model, plan, totalLength, trainableLength, memory, outputs: this.floats.outputs });
    } catch (error) {
      this.close(); // some threads have opened it
      throw error;
    }
  }

  touch(): void {
    this.version++;
  }

  freeze(paths: readonly string[]): void {
    this.ask({ kind: 'freeze', model: this.model, paths });
    this.group?.agree(this.pool, `what is frozen in model ${this.model}`, paths);
  }

  step(batch: HostBatch, step: number, rate: number): StepResult {
    const { count } = batch;
    const buffers = this.buffersFor(count);
    const view = (buffer: SharedArrayBuffer, floats: number): Float32Array => new Float32Array(buffer, 0, count * floats);
    const [inputs, targets, outputs] = (['inputs', 'targets', 'outputs'] as const).map((kind) =>
      buffers[kind].map((buffer, i) => view(buffer, this.floats[kind][i]!)),
    ) as [Float32Array[], Float32Array[], Float32Array[]];
    batch.inputs.forEach((fill, i) => fill(inputs[i]!));
    batch.targets.forEach((fill, i) => fill(targets[i]!));
    const weights = view(buffers.weights, 1);
    if (batch.weights) batch.weights(weights);
    else weights.fill(1);
    const { header } = this;
    header[COUNT] = count;
    header[STEP_NUMBER] = step;
    header[RATE] = rate;
    header[ROWS] = batch.rowsDigest ?? 0;
    this.agree(step);
    header[VERSION] = this.version;
    const failures = this.pool.step(this.model);
    if (failures.length > 0) throw replicaError(failures, step - 1);
    this.agreed = ++this.version;
    const loss = this.losses.reduce((sum, value) => sum + value, 0) / count;
    return { loss, targets, outputs };
  }

  close(): void {
    if (!this.pool.isOpen) return;
    this.ask({ kind: 'close', model: this.model });
    this.group?.close(this.pool, this.model);
  }

  /** All processes take the weights of the first one, where somebody has set some. */
  private agree(step: number): void {
    if (!this.group || this.agreed === this.version) return;
    this.group.takeOver(this.pool, this.model, step);
    this.agreed = ++this.version;
  }

  private ask(message: Parameters<ThreadPool['ask']>[0]): void {
    for (const answer of this.pool.ask(message)) okOf(answer);
  }

  private buffersFor(count: number): BatchBuffers {
    if (this.buffers && count <= this.capacity) return this.buffers;
    if (count > LIMITS.globalBatchExamples)
      throw new ArgumentError(`a batch has ${count} examples; the most is ${LIMITS.globalBatchExamples}: set a smaller batchSize`);
    this.capacity = count;
    const shared = (floats: number): SharedArrayBuffer => new SharedArrayBuffer(count * floats * 4);
    const { inputs, targets, outputs } = this.floats;
    this.buffers = { inputs: inputs.map(shared), targets: targets.map(shared), weights: shared(1), outputs: outputs.map(shared) };
    this.ask({ kind: 'buffers', model: this.model, buffers: this.buffers });
    this.group?.useBuffers(this.pool, this.model, this.buffers);
    return this.buffers;
  }
}

const LINE_BYTES = 64;
const MOST_BYTES = 2 ** 30;
/** The allocator's own rounding. */
const SLACK_BYTES = 1 << 16;

/** All of a model in one arena: parameters, slots, a gradient for each replica of this process, and what other processes send. */
function placed(layout: Layout, share: Share, slots: readonly number[], scratch: number): { arena: Arena; memory: ModelMemory } {
  const replicas = share.to - share.from;
  const largest = Math.max(...layout.chunks.map(({ length }) => length));
  const lengths = [layout.totalLength * (1 + replicas), layout.trainableLength * slots.length, largest, scratch];
  const bytes = lengths.reduce((sum, length) => sum + length * 4, 0) + LINE_BYTES * (replicas + slots.length + 3) + SLACK_BYTES;
  if (bytes > MOST_BYTES)
    throw new UnsupportedError(
      'the size of the model',
      `${layout.totalLength} parameters with ${slots.length} slots and ${replicas} replicas take ${Math.ceil(bytes / 2 ** 20)} MiB of shared memory, and a strategy has 1024 MiB: use fewer replicas`,
    );
  const arena = Arena.create({ initialBytes: bytes, maximumBytes: MOST_BYTES });
  const filled = (length: number, value: number): number => {
    const pointer = arena.alloc(length * 4);
    arena.kernels.fill(pointer, length, value);
    return pointer;
  };
  const memory = {
    arena: arena.memory as SharedMemory,
    parameters: filled(layout.totalLength, 0),
    gradients: Array.from({ length: replicas }, () => filled(layout.totalLength, 0)),
    slots: slots.map((value) => filled(layout.trainableLength, value)),
    zeros: filled(largest, 0),
    header: new SharedArrayBuffer(HEADER * 8),
    losses: new SharedArrayBuffer(share.replicas * 8),
    scratch: scratch > 0 ? filled(scratch, 0) : 0,
  };
  return { arena, memory };
}

function okOf(answer: FromThread | undefined): Extract<FromThread, { kind: 'ok' }> {
  if (!answer) throw new ThreadError('a compute thread did not answer');
  if (answer.kind === 'ok') return answer;
  if (answer.path !== undefined) throw new UnsupportedError(answer.path, answer.message);
  throw new ThreadError(answer.message);
}

/** The failure of the first replica that failed, so that it is the same in every run. */
function replicaError(failures: readonly FromThread[], step: number): Error {
  const [first] = failures.filter((answer) => answer.kind === 'failed').sort((a, b) => (a.replica ?? -1) - (b.replica ?? -1));
  if (!first) return new ThreadError('a replica failed and did not say why');
  return new ReplicaError(first.replica ?? -1, step, first.layer, first.message);
}
