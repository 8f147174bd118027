/** Exchange over parameter servers and workers in other processes: this one has the batches, and a copy of the weights while somebody reads them. */
import { createLayout, type Layout } from '@paceline/learning';
import { fieldLength, LIMITS, type ModelDescription } from '@paceline/spec';
import { ArgumentError, ReplicaError } from '../errors.js';
import type { Exchange, HostBatch, HostRows, StepResult, Trainer, TrainingPlan } from '../exchange.js';
import type { LocalReplicas } from '../replicas/distributed-dataset.js';
import type { Encoded, ReplicaArray } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import type { BatchBuffers, Share } from '../threads/protocol.js';
import { marked } from '../threads/ranges.js';
import { initialSlots, undecayedOf } from '../update-rule.js';
import type { OpenServed } from './coordinator.js';
import { packed, unpacked } from './function-protocol.js';
import type { StepFailure } from './messages.js';
import type { RunEnds } from './replica-runs.js';
import type { ServerLink } from './server-link.js';

export class ServerExchange implements Exchange {
  readonly isShared = false;
  readonly replicas: number;
  readonly local: LocalReplicas;
  private models = 0;

  constructor(
    private readonly link: ServerLink,
    /** The replicas of each worker. */
    private readonly shares: readonly Share[],
  ) {
    const { replicas } = shares[0]!;
    this.replicas = replicas;
    this.local = { replicas, from: 0, to: replicas, process: 0, processes: 1 };
  }

  open(plan: TrainingPlan): Trainer {
    const description = this.link.ask({ kind: 'describe', spec: plan.spec, format: plan.format }) as ModelDescription;
    return new ServedTrainer(this.link, plan, description, this.models++);
  }

  call(fn: NamedFunction, argsOf: (replica: number) => readonly Encoded[]): Encoded[] {
    const args = this.shares.map(({ from, to }) => packed(Array.from({ length: to - from }, (_, i) => argsOf(from + i))));
    const { results, failures } = this.link.ask({ kind: 'run', fn, args }) as RunEnds;
    if (failures.length > 0) throw replicaError(failures, undefined);
    return results.flatMap((each) => unpacked<Encoded[]>(each));
  }

  shareValues(_: string, values: readonly ReplicaArray[]): readonly ReplicaArray[] {
    return values;
  }

  dispose(): Promise<void> {
    return this.link.dispose();
  }
}

const shared = (floats: number): SharedArrayBuffer => new SharedArrayBuffer(Math.max(1, floats) * 4);

class ServedTrainer implements Trainer {
  readonly layout: Layout;
  version = 0;
  /** The version that the servers have. */
  private served = -1;
  /** The version that the copy has. */
  private copied = 0;
  private readonly copy: SharedArrayBuffer;
  /** Whole slots from when somebody reads or writes them until the next step. */
  private slotCopies: readonly SharedArrayBuffer[] | undefined;
  private areSlotsWritten = false;
  private readonly initial: readonly number[];
  private readonly undecayed: readonly string[];
  private readonly floats: OpenServed['floats'];
  private buffers: BatchBuffers | undefined;
  private capacity = 0;
  /** Steps of the optimizer that were last told to the servers, or taken up from them. */
  private steps = 0;
  /** Those that the servers said when the copy was read. */
  private readSteps = 0;
  /** Functions have it, or have had it: the servers may be ahead at any time. */
  private isGiven = false;
  /** A function has ended since `takeUp`. */
  private isBehind = false;

  constructor(
    private readonly link: ServerLink,
    plan: TrainingPlan,
    readonly description: ModelDescription,
    readonly model: number,
  ) {
    this.layout = createLayout(description);
    const { totalLength, trainableLength } = this.layout;
    this.copy = shared(totalLength);
    this.initial = initialSlots(plan.rule);
    this.undecayed = undecayedOf(plan.rule);
    this.floats = {
      inputs: plan.format.inputs.map(fieldLength),
      targets: plan.format.targets.map(fieldLength),
      outputs: description.outputs.map(fieldLength),
    };
    link.ask({ kind: 'open', opened: { model, plan, description, totalLength, trainableLength, floats: this.floats } });
    if (this.undecayed.length > 0) this.freeze([]); // servers know no variables
  }

  get parameters(): Float32Array {
    if (this.copied !== this.version && !this.link.isOpen) this.warnOnce();
    if (this.copied !== this.version && this.served === this.version && this.link.isOpen) {
      this.readSteps = this.link.ask({ kind: 'read', model: this.model, into: this.copy }) as number;
      this.copied = this.version;
    }
    return new Float32Array(this.copy, 0, this.layout.totalLength);
  }

  /** The servers have what was learned since, and are out of reach. */
  private warnOnce(): void {
    this.copied = this.version;
    process.emitWarning('the weights are those that were read last: the parameter servers are gone', { code: 'WEIGHTS_STATE' });
  }

  touch(): void {
    if (this.isGiven) this.fallBehind();
    void this.parameters; // what is written next goes on top of the present values
    this.copied = ++this.version;
  }

  touchSlots(): void {
    if (this.isGiven) this.fallBehind();
    this.areSlotsWritten = true;
  }

  ended(served: number): void {
    if (served === this.model) this.fallBehind();
  }

  /** The servers may have newer values. What was set here and has not gone to them yet stays. */
  private fallBehind(): void {
    this.isBehind = true;
    if (!this.areSlotsWritten) this.slotCopies = undefined;
    if (this.served === this.version) this.served = ++this.version;
  }

  get slots(): readonly Float32Array[] {
    if (!this.slotCopies) {
      const copies = this.initial.map(() => shared(this.layout.trainableLength));
      if (this.served >= 0) this.link.ask({ kind: 'slots', model: this.model, into: copies });
      else for (const [i, copy] of copies.entries()) new Float32Array(copy).fill(this.initial[i]!);
      this.slotCopies = copies;
    }
    return this.slotCopies.map((copy) => new Float32Array(copy, 0, this.layout.trainableLength));
  }

  freeze(paths: readonly string[]): void {
    const frozen = new Set(paths);
    const ranges = this.layout.variables.filter(({ path, section }) => section === 'trainable' && !frozen.has(path));
    this.link.ask({ kind: 'train', model: this.model, ranges: marked(ranges, this.undecayed) });
  }

  step(batch: HostBatch, step: number, rate: number): StepResult {
    this.write(step - 1);
    const { count } = batch;
    const buffers = this.buffersFor(count);
    const [inputs, targets] = [this.views('inputs', buffers, count), this.views('targets', buffers, count)];
    batch.inputs.forEach((fill, i) => fill(inputs[i]!));
    batch.targets.forEach((fill, i) => fill(targets[i]!));
    const weights = new Float32Array(buffers.weights, 0, count);
    if (batch.weights) batch.weights(weights);
    else weights.fill(1);
    const numbers = { model: this.model, generation: this.version, count, step };
    const { losses, failures } = this.link.ask({ kind: 'step', numbers, rate, buffers }) as Ends;
    if (failures.length > 0) throw replicaError(failures, step - 1);
    this.served = ++this.version;
    this.steps = this.readSteps = step;
    this.slotCopies = undefined;
    const loss = losses.reduce((sum, value) => sum + value, 0) / Math.max(1, count);
    return { loss, rows: { from: 0, to: count }, targets, outputs: this.views('outputs', buffers, count) };
  }

  predict({ count, inputs: fills, rowsAtOnce }: HostRows, step: number): Float32Array[] {
    this.write(step - 1);
    const buffers = this.buffersFor(count);
    const inputs = this.views('inputs', buffers, count);
    fills.forEach((fill, i) => fill(inputs[i]!));
    const numbers = { model: this.model, generation: this.version, count, step };
    const { failures } = this.link.ask({ kind: 'predict', numbers, rowsAtOnce, buffers }) as Ends;
    if (failures.length > 0) throw replicaError(failures, step - 1);
    return this.views('outputs', buffers, count);
  }

  serve(steps: number): number {
    this.write(steps);
    this.isGiven = true;
    return this.model;
  }

  takeUp(): number | undefined {
    if (!this.isBehind || !this.link.isOpen) return undefined;
    void this.parameters;
    this.isBehind = false;
    return (this.steps = this.readSteps);
  }

  close(): void {
    if (this.link.isOpen) this.link.ask({ kind: 'close', model: this.model });
  }

  /** What somebody has set goes to the servers, and nothing else: functions may have updated the rest there. */
  private write(steps: number): void {
    const isFirst = this.served < 0;
    const isWritten = this.served !== this.version;
    const areSlots = this.areSlotsWritten || isFirst;
    if (!isWritten && !areSlots && steps === this.steps) return;
    if (areSlots) void this.slots;
    this.link.ask({
      kind: 'write',
      model: this.model,
      steps: isFirst || steps !== this.steps ? steps : undefined,
      parameters: isWritten ? (this.parameters.buffer as SharedArrayBuffer) : undefined,
      slots: areSlots ? this.slotCopies! : undefined,
    });
    this.areSlotsWritten = false;
    this.steps = this.readSteps = steps;
    this.served = this.version;
  }

  private views(kind: 'inputs' | 'targets' | 'outputs', buffers: BatchBuffers, count: number): Float32Array[] {
    return buffers[kind].map((buffer, i) => new Float32Array(buffer, 0, count * this.floats[kind][i]!));
  }

  private buffersFor(count: number): BatchBuffers {
    if (this.buffers && count <= this.capacity) return this.buffers;
    if (count > LIMITS.globalBatchExamples)
      throw new ArgumentError(`a batch has ${count} examples; the most is ${LIMITS.globalBatchExamples}: set a smaller batchSize`);
    this.capacity = count;
    const all = (widths: readonly number[]): SharedArrayBuffer[] => widths.map((width) => shared(count * width));
    const { inputs, targets, outputs } = this.floats;
    this.buffers = { inputs: all(inputs), targets: all(targets), weights: shared(count), outputs: all(outputs) };
    return this.buffers;
  }
}

interface Ends {
  readonly losses: Float64Array;
  readonly failures: readonly StepFailure[];
}

/** The failure of the first replica that failed, so that it is the same in every run. */
function replicaError(failures: readonly StepFailure[], step: number | undefined): ReplicaError {
  const [first] = [...failures].sort((a, b) => (a.replica ?? -1) - (b.replica ?? -1));
  return new ReplicaError(first!.replica ?? -1, step, first!.layer, first!.message);
}
