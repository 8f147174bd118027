/** One attempt as a simulated server holds it: the HostedRun of libs/hosting, and what the invariants look at in it. */
import { WorkItems, type Coordinator, type Journal, type Shard, type AsyncShard } from '@paceline/exchange';
import type { HostedRun } from '@paceline/hosting';
import type { RestorePoint } from '@paceline/control-plane';
import type { TakenRows } from '../checks/checks.js';
import { TermFence, type Fenced } from '../checks/fences.js';
import type { ShardHolder } from './server.js';
import type { WatchedStore } from './watched-store.js';

export class Part implements Fenced {
  readonly attempt: number;
  readonly index: number;
  readonly isStandby: boolean;
  readonly restore: RestorePoint | undefined;
  readonly memory: WatchedStore;
  /** Terms of the peers that this server has connected to. */
  readonly terms = { coordinator: new TermFence(), primary: new TermFence() };

  constructor(
    readonly run: HostedRun,
    readonly server: ShardHolder,
  ) {
    const { attempt, index, role, restore } = run.job;
    this.attempt = attempt;
    this.index = index;
    this.isStandby = role === 'standby';
    this.restore = restore ?? undefined;
    this.memory = run.store as WatchedStore;
    this.memory.part = this;
  }

  get shard(): Shard | AsyncShard {
    return this.run.shard as Shard | AsyncShard;
  }

  get coordinator(): Coordinator | undefined {
    return this.run.coordinator?.machine;
  }

  /** The work items of its coordinator, in modes async and ssp. */
  get items(): WorkItems | undefined {
    const plan = this.coordinator?.plan;
    return plan instanceof WorkItems ? plan : undefined;
  }

  get journal(): Journal | undefined {
    return this.run.coordinator?.journal;
  }

  get over(): boolean {
    return this.run.isOver;
  }

  /** It has to hold everything that is committed: the other server of the shard has not taken its place, and it was not dropped. */
  get counts(): boolean {
    const { run, attempt, index, isStandby, server } = this;
    const { replication, standby } = run.place;
    if (!run.hasStarted || replication?.table.state === 'DEPOSED' || standby?.table.state === 'OVER') return false;
    const other = server.cluster.hosted.find(
      (part) => part.attempt === attempt && part.index === index && part.isStandby !== isStandby && part.run.hasStarted,
    );
    const place = other?.run.place;
    return isStandby ? place?.replication?.table.state !== 'ALONE' : place?.standby?.table.state !== 'PROMOTED';
  }

  /** Whether its process lives and is not stopped. */
  get isRunning(): boolean {
    return this.server.process.isAlive && !this.server.process.isFrozen;
  }

  tables(): readonly (Pick<TakenRows, 'taken'> | undefined)[] {
    const { place } = this.run;
    return [this.shard.table, this.coordinator?.table, place.replication?.table, place.standby?.table];
  }

  /** For reports. */
  get name(): string {
    return `server ${this.index}${this.isStandby ? ' (standby)' : ''}`;
  }
}
