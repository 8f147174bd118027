/** The process of a device: it computes what the compute thread of the program asks for, with the parameters that it reads from there. */
import { TaskError, type Content, type Handler, type Peer, type Received } from '@paceline/collectives';
import type { Encoded } from '../replicas/per-replica.js';
import type { NamedFunction } from '../replicas/replica-function.js';
import { packed, unpacked } from '../servers/function-protocol.js';
import { fromBytes, type Load, type Meet, type OfModel, type Reached, type WorkerPlan } from '../servers/messages.js';
import { RunHost } from '../servers/run-host.js';
import { ServedModel } from '../servers/served-model.js';
import type { ThreadEngine } from '../threads/protocol.js';
import { ThreadPool } from '../threads/thread-pool.js';
import type { DevicePrediction, DeviceStep } from './messages.js';

/** The program has the deadline of a step, and ends this process. */
const LONGEST_MS = 86_400_000;

export class DeviceHost {
  private readonly runs = new RunHost();
  private readonly pool: ThreadPool;
  private readonly models = new Map<number, ServedModel>();
  /** The thread of the program. */
  private peer: Peer | undefined;

  constructor(engine: ThreadEngine) {
    this.pool = new ThreadPool({ threads: 1, deadlineMs: LONGEST_MS, group: this.runs, engine });
  }

  serve(peer: Peer): void {
    this.peer = peer;
  }

  readonly handler: Handler = async (name, { body, parts }: Received): Promise<Content> => {
    const { pool, runs } = this;
    switch (name) {
      case 'open': {
        const { model } = body as OfModel;
        this.models.set(model, new ServedModel(pool, model, fromBytes<WorkerPlan>(parts[0]), 1));
        return {};
      }
      case 'close':
        this.models.get((body as OfModel).model)?.close();
        this.models.delete((body as OfModel).model);
        return {};
      case 'step':
        return this.step(body as DeviceStep, parts);
      case 'predict': {
        const prediction = body as DevicePrediction;
        const model = await this.current(prediction);
        const predicted = await model.predict(prediction, parts);
        return { body: predicted, parts: predicted.failures.length > 0 ? [] : model.outputs(prediction.count) };
      }
      case 'load': {
        const { share, module, name: of } = body as Load;
        return runs.load(pool, { module, name: of }, share).then(() => ({}));
      }
      case 'run':
        return this.reached(runs.run(pool, body as NamedFunction, unpacked<Encoded[][]>(parts[0])));
      case 'meet':
        return this.reached(runs.meet((body as Meet).goesOn, parts[0]));
      default:
        throw new TaskError('BAD_MESSAGE', `a device knows no request "${name}"`);
    }
  };

  private async step(step: DeviceStep, parts: readonly Uint8Array[]): Promise<Content> {
    const model = await this.current(step);
    const stepped = await model.step({ ...step, round: step.step, committed: 0 }, parts);
    if (stepped.failures.length > 0) return { body: stepped };
    return { body: stepped, parts: [...model.sumsFor(0, step.step), ...(step.readsOutputs ? model.outputs(step.count) : [])] };
  }

  /** The model, with the parameters of a generation. */
  private async current({ model, generation }: OfModel & { readonly generation: number }): Promise<ServedModel> {
    const found = this.models.get(model);
    if (!found) throw new TaskError('BAD_MESSAGE', `there is no model ${model} here`);
    if (found.generation === generation) return found;
    found.generation = -1;
    await this.peer!.request('read', { body: { model } }, { deadlineMs: LONGEST_MS, into: found.places() });
    found.generation = generation;
    return found;
  }

  private async reached(point: Promise<Reached>): Promise<Content> {
    const reached = await point;
    return { body: reached, parts: reached.isOver ? [packed(this.runs.taken())] : this.runs.sums() };
  }
}
