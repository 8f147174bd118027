/**
 * What a worker process takes up at a time: a seat in any run, or a shard of one run whose workers hold the shards, and then the seat that goes with it.
 *
 *     idle ── step task ──> seated ── left ──> idle
 *          ── worker placement ──> hosts shard i ── seat i in the control hash ──> seated ── left ──> hosts shard i ── the attempt is over ──> idle
 *
 * Such a run keeps its workers to its end, because each holds a part of the parameters: they never yield.
 */
import {
  isAttemptOver,
  memberSeatsSchema,
  type ControlFields,
  type ControlPlane,
  type HeldJob,
  type JobQueue,
  type PlacementJob,
  type StepTaskJob,
} from '@paceline/control-plane';
import { startSchema } from '../server/placement-loop.js';
import type { SeatQueue } from './seat-loop.js';

const SLICE_MS = 3_000;

export interface WorkerQueuesOptions {
  readonly stepTasks: JobQueue<StepTaskJob>;
  readonly placements: JobQueue<PlacementJob>;
  readonly controlPlane: Pick<ControlPlane, 'readControl'>;
  /** It takes placements. Others yield to none: a worker that can hold it will. */
  readonly holdsShards: boolean;
  /** The placement by which this process holds a shard now. */
  hosted(): PlacementJob | undefined;
}

export class WorkerQueues {
  private isSeated = false;
  private isStopped = false;
  /** A placement was handed out, and its shard is not there yet. */
  private isPlacing = false;
  /** The newest seat of a hosted run that was taken here. */
  private last: { readonly runId: string; readonly attempt: number; readonly incarnation: number } | undefined;

  constructor(private readonly options: WorkerQueuesOptions) {}

  /** Nothing new is taken: the process is about to end. A seat that goes with its shard may be taken again until the shard is gone. */
  stop(): void {
    this.isStopped = true;
  }

  /** For the PlacementLoop: nothing while this worker sits in a run, or holds a shard of an attempt that is not over. */
  readonly placements: JobQueue<PlacementJob> = {
    take: async () => {
      if (this.isStopped || this.isSeated) return undefined;
      const hosted = this.options.hosted();
      if (hosted && !isOver(hosted, await this.options.controlPlane.readControl(hosted.runId))) return undefined;
      const held = await this.options.placements.take();
      if (!held) return undefined;
      if (this.isStopped || this.isSeated) {
        await held.giveBack();
        return undefined;
      }
      this.isPlacing = true;
      const placed = (answer: Promise<boolean>): Promise<boolean> => answer.finally(() => (this.isPlacing = false));
      return { ...held, complete: (result) => placed(held.complete(result)), giveBack: () => placed(held.giveBack()) };
    },
    peek: () => this.options.placements.peek(),
    close: () => this.options.placements.close(),
  };

  /** For the SeatLoop: with a shard, the seat of that alone, until its attempt is over. */
  readonly seats: SeatQueue = {
    take: async () => {
      const hosted = this.options.hosted();
      if (!hosted) return this.anySeat(undefined);
      const control = await this.options.controlPlane.readControl(hosted.runId);
      return isOver(hosted, control) ? this.anySeat(hosted) : this.seatOf(hosted, control);
    },
    peek: async () => {
      const hosted = this.options.hosted();
      if (hosted && !isOver(hosted, await this.options.controlPlane.readControl(hosted.runId))) return undefined;
      const waiting = this.options.holdsShards ? await this.options.placements.peek() : undefined;
      return waiting ? { runId: waiting.runId, heldSeats: 0 } : this.options.stepTasks.peek();
    },
    close: () => this.options.stepTasks.close(),
  };

  /** @param over a placement of an attempt that is over, whose shard has not let go */
  private async anySeat(over: PlacementJob | undefined): Promise<HeldJob<StepTaskJob> | undefined> {
    if (this.isStopped) return undefined;
    const held = await this.options.stepTasks.take();
    if (!held) return undefined;
    const hosted = this.options.hosted();
    const hasShard = hosted !== undefined && hosted !== over;
    // A shard was taken meanwhile, or the process is told to end.
    if (this.isStopped || this.isPlacing || hasShard) {
      await held.giveBack();
      return undefined;
    }
    this.isSeated = true;
    const left = (answer: Promise<boolean>): Promise<boolean> => answer.finally(() => (this.isSeated = false));
    return { ...held, complete: (result) => left(held.complete(result)), giveBack: () => left(held.giveBack()) };
  }

  private seatOf(job: PlacementJob, { start, seats }: ControlFields): HeldJob<StepTaskJob> | undefined {
    const { runId, attempt, index } = job;
    const [begun, offered] = [startSchema.safeParse(parsed(start)), memberSeatsSchema.safeParse(parsed(seats))];
    if (!begun.success || begun.data.attempt !== attempt || !offered.success || offered.data.attempt !== attempt) return undefined;
    const own = offered.data.seats.find(({ seat }) => seat === index);
    const isTaken = this.last?.runId === runId && this.last.attempt === attempt && this.last.incarnation >= (own?.incarnation ?? 0);
    if (!own || isTaken || this.options.hosted() !== job) return undefined;
    this.last = { runId, attempt, incarnation: own.incarnation };
    this.isSeated = true;
    const leave = (): Promise<boolean> => {
      this.isSeated = false;
      return Promise.resolve(true);
    };
    const payload = stepTaskOf(job, own, begun.data);
    return { id: own.stepTaskId, payload, keep: () => Promise.resolve(true), complete: leave, giveBack: leave };
  }
}

/** A shard may look for its coordinator, or ask the arbiter, for minutes after the end of its attempt. */
const isOver = ({ attempt }: PlacementJob, control: ControlFields): boolean => isAttemptOver(control, attempt);

/** The seat that goes with the shard, as a step task. */
function stepTaskOf(
  { runId, attempt, spec, model, data, fingerprint, member }: PlacementJob,
  { seat, incarnation, stepTaskId }: { readonly seat: number; readonly incarnation: number; readonly stepTaskId: string },
  { servers, standbys = [] }: Pick<StepTaskJob, 'servers' | 'standbys'>,
): StepTaskJob {
  return {
    kind: 'step-task',
    stepTaskId,
    runId,
    attempt,
    seat,
    incarnation,
    sliceMs: SLICE_MS,
    heldSeats: 0,
    spec,
    model,
    data,
    servers,
    token: member?.seatToken ?? '',
    ...(standbys.length > 0 ? { standbys } : {}),
    ...(fingerprint === undefined ? {} : { fingerprint }),
  };
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined; // written by nobody that we know
  }
}
