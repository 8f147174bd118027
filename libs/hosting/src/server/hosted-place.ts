/**
 * The place of a run's shard on this server: ShardPlace with the clock, the connections and the control plane of its process.
 *
 *   ask ── report `lead.asked` ──> arbiter ── field of the control hash ──> read every 100 ms while this server waits for it
 */
import { ShardPlace, type ShardMachine, type CancelTimer, type Connection, type PlaceEnd, type Succession } from '@paceline/exchange';
import { leadFieldName, leadSchema, type LeadAnswer, type PlacementJob, type ServerAddress } from '@paceline/control-plane';
import type { ServerContext } from './server-context.js';

const TICK_MS = 100;

export interface HostedPlaceOptions {
  readonly job: PlacementJob;
  /** Made with this place, which it speaks through. */
  shard(): ShardMachine;
  readonly context: ServerContext;
  readonly layoutHash: string;
  /** Index 0: the near end of a connection to the coordinator here; `successor` when it takes the place of another. */
  coordinate(successor: { readonly succession: Succession; readonly storedSequence: number } | undefined): Connection;
  onOver(end: PlaceEnd, why: string): void;
  guard(act: () => void): void;
}

export class HostedPlace {
  readonly place: ShardPlace<ServerAddress>;
  private cancelTicker: CancelTimer | undefined;
  private isReading = false;
  private answer: LeadAnswer | undefined;

  constructor(private readonly options: HostedPlaceOptions) {
    const { job, context } = options;
    const { runId, attempt, index, token } = job;
    this.place = new ShardPlace<ServerAddress>({
      index,
      attempt,
      serverId: context.serverId,
      isStandby: job.role === 'standby',
      clock: context.clock,
      connect: (address) => context.connectTo(address),
      hello: (role) => ({
        type: 'hello',
        token,
        run: runId,
        role,
        id: context.serverId,
        host: context.host,
        seat: index,
        incarnation: 0,
        fingerprint: '',
        layout: options.layoutHash,
      }),
      ask: (want, term) => {
        const report = { kind: 'lead.asked', runId, attempt, index, serverId: context.serverId, want, term } as const;
        context.controlPlane
          .sendReport(report)
          .catch((error: Error) => context.log.debug({ err: error, report }, 'the arbiter could not be asked'));
      },
      coordinatorHere: (isPromoted) => options.coordinate(isPromoted ? this.successor() : undefined),
      onPromoted: () => context.log.warn({ run: runId, index, term: options.shard().term }, 'this standby is the primary now'),
      onOver: (end, why) => options.onOver(end, why),
      guard: (act) => options.guard(act),
    });
  }

  /** All servers of the attempt are claimed. */
  start(servers: readonly ServerAddress[], standbys: readonly ServerAddress[]): void {
    this.cancelTicker = this.options.context.clock.every(TICK_MS, () => this.tick());
    this.place.use(this.options.shard());
    this.place.start({ servers, standbys });
  }

  end(): void {
    this.cancelTicker?.();
    this.place.end(true);
  }

  private tick(): void {
    this.options.guard(() => this.place.tick());
    if (this.place.isAsking && !this.isReading) void this.read();
  }

  private async read(): Promise<void> {
    const { job, context } = this.options;
    this.isReading = true;
    try {
      const field = leadFieldName(job.index);
      const { [field]: text } = await context.controlPlane.readControl(job.runId, [field]);
      const parsed = text === undefined ? undefined : leadSchema.safeParse(JSON.parse(text));
      if (!parsed?.success || parsed.data.attempt !== job.attempt) return;
      this.answer = parsed.data;
      this.place.answered(parsed.data);
    } catch (error) {
      context.log.debug({ err: error as Error, run: job.runId }, 'the arbiter is not heard; asked again');
    } finally {
      this.isReading = false;
    }
  }

  private successor(): { readonly succession: Succession; readonly storedSequence: number } {
    const shard = this.options.shard();
    const { storedSequence = 0, ledgerFrom = 0, newest = 0, terms } = this.answer ?? {};
    return { storedSequence, succession: { term: shard.term, ...shard.known(), ledgerFrom, newest, terms } };
  }
}
