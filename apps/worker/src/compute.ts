/** The engine of a seat, on the main thread: one compute thread or several. It passes steps on, and gives gradient memory back. */
import type { ChunkBytes, MemberChunk, Recording, ReplicaResidual, Rows, WorkItem } from '@paceline/exchange';
import { Codec } from '@paceline/protocol';
import type { RunRowsSettings } from '@paceline/data';
import type { EngineDevice, LeakLimits } from '@paceline/engine';
import type { SeatCompute, SeatComputeEvents } from '@paceline/hosting';
import type { StepTaskJob } from '@paceline/control-plane';
import { ARENA_MAXIMUM_BYTES } from '@paceline/kernels';
import { createLayout, replicaRows } from '@paceline/learning';
import { stagesOf, type RunSpec } from '@paceline/spec';
import {
  CELL_COMMITTED,
  CELL_PROGRESS,
  cellBytes,
  type ComputeInit,
  type EngineChoice,
  type FromCompute,
  type ToCompute,
} from './compute-protocol.js';
import { ArrivalCells } from './arrivals.js';
import { executionMemory, Executions, type OwnShard } from './executions.js';
import { GradientMemory, GradientReader, gradientVectorsOf, type PlacedNode, type Vector } from './gradient-memory.js';
import type { Leak } from './leak-guard.js';
import { boundaryBytes, flowMemory } from './stage-flow.js';
import { StageNodes } from './stage-nodes.js';
import { ComputeStartError, ThreadHandle, threadName } from './thread-handle.js';
import { ThreadNodes } from './thread-nodes.js';

export interface ComputeOptions {
  /** Growth of its memory at which a worker begins anew. */
  readonly leakLimits: LeakLimits;
  /** Where prepared datasets lie. */
  readonly rowsSettings: RunRowsSettings;
}

/** What a seat gives its threads beside that. */
interface SeatThreads extends ComputeOptions {
  readonly threads: number;
  readonly shard: OwnShard;
}

export class Compute implements SeatCompute {
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  /** The memory of a thread grows: all have to be ended when the run can do without them. Told once. */
  onLeak: ((leak: Leak) => void) | undefined;
  private readonly cells: Int32Array;
  private gradients: GradientReader | undefined;
  private nodes: ThreadNodes | undefined;
  private stages: StageNodes | undefined;
  private executions: Executions | undefined;
  private events: SeatComputeEvents | undefined;
  private hasLeaked = false;
  private stopped = false;
  /** Gradient memory of the only thread that nobody reads any more. */
  private readonly freed: Vector[] = [];

  private constructor(
    private readonly threads: readonly ThreadHandle[],
    cells: SharedArrayBuffer,
    readonly arrivals: ArrivalCells,
    private readonly spec: RunSpec,
    /** Of several threads. */
    private memory: GradientMemory | undefined,
    executions: ((ports: Pick<ThreadPorts, 'post' | 'node'>) => Executions) | undefined,
  ) {
    this.cells = new Int32Array(cells);
    const [first] = threads;
    this.fingerprint = first!.fingerprint;
    this.devices = first!.devices;
    const { memories, parts } = memory ?? first!.gradients!;
    this.gradients = new GradientReader(memories, parts);
    if (!memory) return;
    const { replicas } = spec;
    const post: ThreadPorts['post'] = (thread, message) => threads[thread]!.post(message);
    const node: ThreadPorts['node'] = (round, { lo, hi, vector }) =>
      this.node({ kind: 'node', round, lo, hi, vector, contribution: undefined });
    if (executions) {
      this.executions = executions({ post, node });
      return;
    }
    if (stagesOf(spec.strategy) === undefined) {
      this.nodes = new ThreadNodes({ threads: threads.length, replicas, memory, post, node });
      return;
    }
    this.stages = new StageNodes({
      stages: threads.length,
      replicas,
      memory,
      post,
      node,
      contribution: (message) => this.tell(message),
      evaluated: (message) => this.tell(message),
      failed: (message, round) => this.events!.failed('STAGES_DIFFER', message, round, -1),
    });
  }

  /** Starts the threads: each loads its engine and the dataset. @throws ComputeStartError */
  static async start(
    job: StepTaskJob,
    engine: EngineChoice,
    parameters: SharedArrayBuffer,
    { threads, leakLimits, rowsSettings, shard }: SeatThreads,
  ): Promise<Compute> {
    const cells = new SharedArrayBuffer(cellBytes(threads));
    const { spec, data, model } = job;
    const stages = stagesOf(spec.strategy);
    // Stages have the same vectors, and not each its own.
    const vectors = gradientVectorsOf(spec, stages === undefined ? threads : 1);
    const layout = createLayout(model);
    const executes = spec.strategy.kind === 'tpu';
    // Optimizers go over whole vectors, so those lie in one arena.
    const memory = threads > 1 || executes ? new GradientMemory(layout, vectors, executes ? ARENA_MAXIMUM_BYTES : undefined) : undefined;
    const execution = memory && executes ? executionMemory(spec, layout, memory, threads) : undefined;
    const arrivals = new ArrivalCells(layout, () => handles.forEach((handle) => handle.ring()));
    const init = (thread: number): ComputeInit => ({
      spec,
      data,
      rowsSettings,
      engine,
      description: model,
      servers: job.servers.length,
      parameters,
      cells,
      arrivals: arrivals.memory,
      leakLimits,
      thread,
      threads,
      lent: memory && { memories: memory.memories, parts: memory.parts },
      execution,
    });
    let handles: readonly ThreadHandle[] = [];
    const started = await Promise.allSettled(Array.from({ length: threads }, (_, thread) => ThreadHandle.start(init(thread))));
    handles = started.flatMap((thread) => (thread.status === 'fulfilled' ? [thread.value] : []));
    const refused = started.find((thread) => thread.status === 'rejected');
    const prints = new Set(handles.map(({ fingerprint }) => fingerprint));
    try {
      if (refused) throw refused.reason;
      if (prints.size > 1) throw new ComputeStartError(`the compute threads have different engines: ${[...prints].join(' and ')}`);
      if (stages !== undefined) joinStages(handles);
      const executions =
        memory && execution
          ? (ports: Pick<ThreadPorts, 'post' | 'node'>) =>
              new Executions({ threads, replicas: spec.replicas, memory, execution, layout, shard, ...ports })
          : undefined;
      return new Compute(handles, cells, arrivals, spec, memory, executions);
    } catch (error) {
      await Promise.all(handles.map((thread) => thread.stop()));
      throw error;
    }
  }

  /** Names of the layers of each stage, with the strategy model-parallel. */
  get stageLayers(): readonly (readonly string[])[] | undefined {
    return this.stages && this.threads.map(({ stage }) => stage!.layers);
  }

  listen(events: SeatComputeEvents): void {
    this.events = events;
    for (const [i, thread] of this.threads.entries())
      thread.listen({
        message: (message) => this.pass(message, i),
        failed: (code, message) => events.failed(code, message, 0, -1),
      });
  }

  /** A count that moves whenever a thread moves. */
  get progress(): number {
    return Atomics.load(this.cells, CELL_PROGRESS);
  }

  step(round: number, replicas: readonly number[], codec?: string): void {
    const steps = this.executions ?? this.nodes ?? this.stages;
    if (!steps) return this.post({ kind: 'step', round, replicas, codec, free: this.freed.splice(0) });
    if (this.stopped) return;
    this.tryStep(round, () => steps.step(round, replicas));
  }

  private tryStep(round: number, act: () => void): void {
    try {
      act();
    } catch (error) {
      const { name, message, code } = error as Error & { readonly code?: unknown };
      // The session may not end while its member is at work.
      setImmediate(() => this.events?.failed(typeof code === 'string' ? code : name, message, round, -1));
    }
  }

  item(item: WorkItem, next: WorkItem | undefined): void {
    this.post({ kind: 'item', item, next });
  }

  /** Several threads share the blocks. */
  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void {
    if (this.stages) return this.stages.evaluate(generation, blocks);
    for (const [i, thread] of this.threads.entries()) {
      const { from, to } = replicaRows(blocks.length, this.threads.length, i);
      if (from < to) thread.post({ kind: 'evaluate', generation, blocks: blocks.slice(from, to) });
    }
  }

  rows(generation: number, group: number, rows: Rows): void {
    this.post({ kind: 'rows', generation, group, rows });
  }

  readResiduals(round: number, replicas: readonly number[]): void {
    this.post({ kind: 'read-residuals', round, replicas });
  }

  takeResidual(round: number, { replica, values }: ReplicaResidual): void {
    this.threads[0]!.post({ kind: 'take-residual', round, replica, values }, [values.buffer]);
  }

  /** The threads record their spans from now on. */
  startTrace(): void {
    for (const thread of this.threads) thread.post({ kind: 'trace', isOn: true });
  }

  /** What they have recorded, once each is between two steps; nothing of one for which that takes longer than the deadline. */
  async stopTrace(deadlineMs: number): Promise<{ readonly name: string; readonly recording: Recording }[]> {
    const recordings = await Promise.all(this.threads.map((thread) => thread.stopTrace(deadlineMs)));
    const name = (i: number): string => (this.threads.length === 1 ? 'compute' : `${this.stages ? 'stage' : 'compute'} ${i}`);
    return recordings.flatMap((recording, i) => (recording ? [{ name: name(i), recording }] : []));
  }

  committed(round: number): void {
    Atomics.store(this.cells, CELL_COMMITTED, round + 1);
    this.nodes?.committed(round);
  }

  /** Does not wait for the present step, except for engines that have to end by themselves. Never rejects. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.executions?.stop();
    await Promise.all(this.threads.map((thread) => thread.stop()));
    // The memory is shared with the threads: who still holds this object does not hold that.
    this.gradients = undefined;
    this.memory = undefined;
    this.nodes = undefined;
    this.stages = undefined;
    this.executions = undefined;
  }

  /** With the next step, which follows at once as a rule: a message costs more than what it says. */
  private free(vector: Vector): void {
    if (this.executions ?? this.nodes ?? this.stages) return this.memory?.free(vector);
    if (this.freed.push(vector) > 1) return;
    setImmediate(() => {
      if (this.freed.length > 0) this.post({ kind: 'free', vectors: this.freed.splice(0) });
    });
  }

  /** To the only thread: what several do not serve is refused with the spec. */
  private post(message: ToCompute): void {
    this.threads[0]!.post(message);
  }

  private pass(message: FromCompute, thread: number): void {
    if (!this.stages?.takes(message, thread)) this.tell(message, thread);
  }

  private tell(message: FromCompute, thread = 0): void {
    const events = this.events!;
    switch (message.kind) {
      case 'contribution':
        return events.contribution(message.round, message.replica, message.examples, message.sums, message.lost);
      case 'node':
        if (message.contribution) this.tell(message.contribution);
        return this.nodes ? this.nodes.came(message.round, message) : this.node(message);
      case 'stepped':
        for (const vector of message.vectors) this.memory?.free(vector);
        return;
      case 'summed':
        return this.nodes?.added(message.sum);
      case 'executed':
        return this.tryStep(message.round, () => this.executions?.executed(message.round, message.isFinite));
      case 'evaluated':
        return events.evaluated(message.generation, message.from, message.to, message.examples, message.sums);
      case 'residuals':
        return events.residuals?.(message.round, message.residuals);
      case 'wants':
        return events.wants?.(message.generation, message.group, message.ids);
      case 'leak':
        if (!this.hasLeaked) this.onLeak?.(message.leak);
        this.hasLeaked = true;
        return;
      case 'non-finite':
        return events.nonFinite(message.round, message.replica);
      case 'failed': {
        const { code, round, replica } = message;
        const { spec, threads } = this;
        const where = threads.length === 1 ? '' : `${threadName({ spec, thread, threads: threads.length })}: `;
        return events.failed(code, where + message.message, round, replica);
      }
      case 'traced':
        return; // the handle takes it
      case 'ready':
        throw new Error('the compute thread was ready twice');
    }
  }

  private node(message: Extract<FromCompute, { kind: 'node' }>): void {
    const { round, lo, hi, vector, encoded, groups = [] } = message;
    const { gradients } = this;
    if (!gradients) return; // it has been stopped
    const chunkOf = (chunk: Pick<MemberChunk, 'index' | 'offset' | 'length'>): ChunkBytes => {
      const rows = groups.find(({ group }) => group === chunk.index);
      return rows ? { codec: Codec.rows, bytes: rows.bytes } : gradients.chunk(vector, encoded, chunk);
    };
    this.events!.node({ round, lo, hi, chunk: chunkOf, release: () => this.free(vector) });
  }
}

/** How what shares the threads of a seat speaks to them, and hands nodes on. */
interface ThreadPorts {
  post(thread: number, message: ToCompute): void;
  node(round: number, node: PlacedNode): void;
}

/** Tells each stage where the boundaries between them lie. @throws ComputeStartError where the system refuses the memory for these */
function joinStages(handles: readonly ThreadHandle[]): void {
  const stages = handles.map(({ stage }) => stage!);
  const { rows, evaluationRows } = stages[0]!;
  const sizes = { widths: stages.flatMap(({ width }) => width ?? []), rows, evaluationRows };
  try {
    const memory = flowMemory(sizes);
    for (const handle of handles) handle.post({ kind: 'flow', memory, sizes });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const bytes = boundaryBytes(sizes).reduce((sum, each) => sum + each, 0);
    throw new ComputeStartError(
      `the system refuses ${Math.ceil(bytes / 1e6)} MB for the tensors between ${handles.length} stages, with ${rows} examples in each micro-batch: ` +
        'take more replicas, or cut the model where smaller tensors go over (strategy.cutAfter)',
      'STAGES_TOO_LARGE',
    );
  }
}
