/**
 * One model in a compute thread whose replicas are computed by the process of a device. The thread sends rows, and the process reads the parameters where
 * they are others than before; the sums of the nodes that the process has added up come back to where the gradients of these replicas lie. From there on all is
 * as between threads: each adds its range up over the whole tree, and updates it.
 */
import { createLayout, maximalNodes, replicaRows, type Node } from '@paceline/learning';
import { Arena } from '@paceline/kernels';
import { fieldLength } from '@paceline/spec';
import { TaskError } from '@paceline/collectives';
import { bytesOf, CODES, textBytes, type Stepped, type WorkerPlan } from '../servers/messages.js';
import { COUNT, RATE, ROWS_AT_ONCE, STEP_NUMBER, type OpenModel, type Share } from '../threads/protocol.js';
import { ReplicaSession, type SessionEngine } from '../threads/replica-session.js';
import { DeviceFailure, DeviceLink } from './device-link.js';
import type { DevicePrediction, DeviceStep } from './messages.js';

/** A model that the engine does not train. */
export class DeviceModelError extends Error {
  constructor(
    readonly path: string,
    message: string,
  ) {
    super(message);
  }
}

/** The parameters are there when the next step asks for them. */
class Generations implements SessionEngine {
  now = 0;
  onClose: () => void = () => undefined;

  load(): void {
    this.now++;
  }

  step(): never {
    throw new Error('the process of the device computes');
  }

  dispose(): void {
    this.onClose();
  }
}

const keyOf = (lo: number, hi: number): string => `${lo},${hi}`;
const nodesOfThread = (share: Share, threads: number, thread: number): Node[] => {
  const { from, to } = replicaRows(share.replicas, threads, thread); // replicas are shared out as rows are
  return maximalNodes(share.replicas, new Set(Array.from({ length: to - from }, (_, i) => from + i)));
};

export class DeviceSession extends ReplicaSession {
  private readonly nodes: readonly Node[];
  /** Of all devices: what comes summed. */
  private readonly summed: ReadonlySet<string>;

  private constructor(
    open: OpenModel,
    index: number,
    threads: number,
    private readonly link: DeviceLink,
    private readonly generations: Generations,
  ) {
    super(open, index, threads, createLayout(open.description), Arena.attach(open.memory.arena), generations);
    this.nodes = nodesOfThread(open.share, threads, index);
    const all = Array.from({ length: threads }, (_, thread) => nodesOfThread(open.share, threads, thread)).flat();
    this.summed = new Set(all.map(({ lo, hi }) => keyOf(lo, hi)));
    generations.onClose = () => this.closed();
  }

  static async openAt(link: DeviceLink, open: OpenModel, index: number, threads: number): Promise<DeviceSession> {
    const session = new DeviceSession(open, index, threads, link, new Generations());
    await session.opened();
    return session;
  }

  private async opened(): Promise<void> {
    const { open, link, replicas, nodes } = this;
    const { model, spec, format, rule, readsOutputs, description } = open;
    const share: Share = { replicas: open.share.replicas, from: replicas[0]!, to: replicas.at(-1)! + 1, nodes };
    const plan: WorkerPlan = { spec, format, rule, readsOutputs, description, share, codec: { kind: 'none', seed: 0 } };
    link.serve(model, bytesOf(this.parameters));
    const content = { body: { model }, parts: [textBytes(plan)] };
    try {
      await link.request('open', content, { deadlineMs: link.startMs, answers: [CODES.unsupported] });
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      const [path, message] = JSON.parse(error.message) as [string, string];
      throw new DeviceModelError(path, message);
    }
  }

  private closed(): void {
    const { model } = this.open;
    this.link.forget(model);
    // Nobody waits for it. What it fails with, the next request fails with too.
    this.link.request('close', { body: { model } }).catch(() => undefined);
  }

  /** All of the device's replicas, with the first of them. */
  override async replica(replica: number): Promise<void> {
    const { replicas, header, open, nodes, generations } = this;
    if (replica !== replicas[0]) return;
    const rows = this.ownRows();
    const sums = nodes.map(({ lo }) => this.gradients[lo]!);
    const losses = this.losses[this.set]!;
    if (rows.count === 0) {
      for (const sum of sums) sum.fill(0);
      for (const each of replicas) losses[each] = 0;
      return;
    }
    const { inputs, targets, weights, outputs } = rows;
    const { readsOutputs, model } = open;
    const [count, step, rate] = [header[COUNT]!, header[STEP_NUMBER]!, header[RATE]!];
    const body: DeviceStep = { model, generation: generations.now, count, step, rate, readsOutputs };
    const parts = [...inputs, ...targets, weights].map(bytesOf);
    const into = [...sums, ...(readsOutputs ? outputs : [])].map(bytesOf);
    const received = await this.link.request('step', { body, parts }, { into });
    const { losses: own } = this.checked(received.body as Stepped);
    for (const [i, each] of replicas.entries()) losses[each] = Number(own[i]);
  }

  override async predict(replica: number): Promise<void> {
    const { replicas, header, open, generations } = this;
    const rows = this.ownRows();
    if (replica !== replicas[0] || rows.count === 0) return;
    const [count, step, rowsAtOnce] = [header[COUNT]!, header[STEP_NUMBER]!, header[ROWS_AT_ONCE]!];
    const body: DevicePrediction = { model: open.model, generation: generations.now, count, step, rowsAtOnce };
    const content = { body, parts: rows.inputs.map(bytesOf) };
    const received = await this.link.request('predict', content, { into: rows.outputs.map(bytesOf) });
    this.checked(received.body as Stepped);
  }

  /** @throws DeviceFailure */
  private checked(stepped: Stepped): Stepped {
    const [first] = stepped.failures;
    if (first) throw new DeviceFailure(first.replica, first.layer, `${first.message} (on device ${this.link.name})`);
    return stepped;
  }

  private ownRows() {
    const { open, header, replicas, buffers } = this;
    const total = header[COUNT]!;
    const { from } = replicaRows(total, open.share.replicas, replicas[0]!);
    const { to } = replicaRows(total, open.share.replicas, replicas.at(-1)!);
    const { inputs, targets, weights, outputs } = buffers[this.set]!;
    const part = (buffer: SharedArrayBuffer, floats: number): Float32Array =>
      new Float32Array(buffer, from * floats * 4, (to - from) * floats);
    const { format, description } = open;
    return {
      count: to - from,
      inputs: inputs.map((buffer, i) => part(buffer, fieldLength(format.inputs[i]!))),
      targets: targets.map((buffer, i) => part(buffer, fieldLength(format.targets[i]!))),
      weights: part(weights, 1),
      outputs: outputs.map((buffer, i) => part(buffer, fieldLength(description.outputs[i]!))),
    };
  }

  protected override isSummed(lo: number, hi: number): boolean {
    return this.summed.has(keyOf(lo, hi));
  }
}
