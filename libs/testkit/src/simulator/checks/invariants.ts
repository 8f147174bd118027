/** The invariants of the machines, looked at after every event, and at the end of the run. */
import type { AsyncShard, Coordinator, Shard } from '@paceline/exchange';
import type { PreparedJob } from '@paceline/control-plane';
import type { Part } from '../actors/part.js';
import type { ShardHolder } from '../actors/server.js';
import type { Cluster } from '../cluster.js';
import type { TakenRows } from './checks.js';
import type { SimProcess } from '../world/process.js';
import { checkBounds } from './bounds.js';

/** Faults after which a job that was enqueued may be missing, and is enqueued again. */
const LOSSES_OF_REDIS = ['flush Redis', 'restart Redis'];
/** Faults after which nobody answers a server that asks who leads its shard. */
const AWAY_FROM_ARBITER = [
  ...['PostgreSQL away', 'Redis away', 'restart Redis', 'flush Redis', 'kill an api', 'stop an api'],
  'a server loses the control plane',
];
/** A placement that is lost is made again after 15 s at the latest, a coordinator that is silent is given up after 20 s. */
const UNOWNED_AT_MOST_MS = 60_000;

export class Invariants {
  private readonly shardRounds = new Map<Shard | AsyncShard, number>();
  private readonly memberRounds = new Map<object, number>();
  private readonly coordinatorRounds = new Map<Coordinator, { round: number; view: number }>();
  private readonly appliedOnce = new Set<string>();
  private readonly primaries = new Map<string, ShardHolder>();
  /** Jobs that were enqueued, by what they ask for, with the id. */
  private readonly enqueuedOnce = new Map<string, string>();
  private unownedSinceMs: number | undefined;

  constructor(private readonly cluster: Cluster) {}

  afterEvent(): void {
    const { cluster } = this;
    this.owned();
    for (const part of cluster.hosted) {
      if (part.over) continue;
      cluster.items?.afterEvent(part);
      this.leads(part);
      if (cluster.items) continue;
      this.shard(part);
      if (part.server.process.isAlive) checkBounds(part, cluster);
      if (part.coordinator) this.coordinator(part, part.coordinator);
    }
    // In modes async and ssp a member's work items come in any order.
    for (const worker of cluster.items ? [] : cluster.workers) {
      const member = worker.session?.member;
      if (!member) continue;
      const before = this.memberRounds.get(member) ?? 0;
      if (member.round !== before) {
        cluster.checks.expect(member.round > before, 'I1', () => `member ${worker.id} went from round ${before} to ${member.round}`);
        this.memberRounds.set(member, member.round);
      }
    }
  }

  /** A shard has one primary in each term: whoever takes over does so in a term of its own. */
  private leads({ run, attempt, index, shard, server }: Part): void {
    if (!run.hasStarted || !run.place.isPrimary) return;
    const key = `${attempt}/${index}/${shard.term}`;
    const primary = this.primaries.get(key);
    if (primary === undefined) this.primaries.set(key, server);
    else
      this.cluster.checks.expect(
        primary === server,
        'I7',
        () => `${primary!.process.name} and ${server.process.name} both lead parameter server ${index} in term ${shard.term}`,
      );
  }

  applied(part: Part, chunk: number, round: number): void {
    const key = `${part.attempt}/${part.server.process.name}/${round}/${chunk}`;
    this.cluster.checks.expect(
      !this.appliedOnce.has(key),
      'I2',
      () => `round ${round} was applied twice to chunk ${chunk} in attempt ${part.attempt} by ${part.name}`,
    );
    this.appliedOnce.add(key);
  }

  /** A job has come into a queue that did not have its id. */
  enqueued({ jobId, payload }: PreparedJob): void {
    const { checks, network } = this.cluster;
    const part = payload.kind === 'placement' ? `${payload.index}/${payload.role}` : `${payload.seat}/${payload.incarnation}`;
    const incarnation = payload.kind === 'placement' ? /-m(?<incarnation>\d+)$/u.exec(jobId)?.groups?.['incarnation'] : '';
    const what = `${payload.kind} ${payload.attempt}/${part}/${incarnation}`;
    const before = this.enqueuedOnce.get(what);
    const isLost = LOSSES_OF_REDIS.some((fault) => network.fired.has(fault));
    checks.expect(
      before === undefined || (before === jobId && isLost),
      'outbox',
      () => `${what} was enqueued as ${before}, and again as ${jobId}`,
    );
    this.enqueuedOnce.set(what, jobId);
  }

  /** I9: as long as stores and an api are there, a run that is not over has somebody who goes on with it, or is about to be given to one. */
  private owned(): void {
    const { control, postgres, redis, checks, world, network } = this.cluster;
    const { status, attempt } = control;
    const needsOwner = status === 'QUEUED' || status === 'PROVISIONING' || status === 'RUNNING' || status === 'PAUSING';
    const owner = this.cluster.coordinatorPart;
    const isOwned =
      !needsOwner || (owner !== undefined && owner.attempt === attempt && owner.run.hasStarted && !owner.over && owner.isRunning);
    const isStalled = postgres.isAway || redis.isAway || !control.isReachable || postgres.lockHolder?.isFrozen === true;
    const mayWait = ({ isAlive, isFrozen, host }: SimProcess): boolean => !isAlive || isFrozen || network.isCut(host, 'redis');
    if (isOwned || isStalled || this.cluster.servers.some(({ process }) => mayWait(process))) return void (this.unownedSinceMs = undefined);
    this.unownedSinceMs ??= world.nowMs;
    const unownedMs = world.nowMs - this.unownedSinceMs;
    checks.expect(
      unownedMs <= UNOWNED_AT_MOST_MS,
      'I9',
      () => `nobody has gone on with the run for ${Math.round(unownedMs)} ms: ${control.reason}`,
    );
  }

  /** With backup replicas: a shard is told which replicas count. All are told the same, in one round. */
  included(round: number, replicas: readonly number[]): void {
    const { checks, reference, run } = this.cluster;
    const { gradient, replicas: all } = run.shape;
    const withRows = Array.from({ length: all }, (_, replica) => replica).filter(
      (replica) => run.replicaExamples(round, replica) > 0,
    ).length;
    checks.expect(reference.fix(round, replicas), 'I2', () => `round ${round} has two sets of replicas, one is [${replicas.join(' ')}]`);
    checks.expect(
      replicas.length >= Math.max(1, withRows - gradient.backupReplicas) &&
        replicas.every((replica) => run.replicaExamples(round, replica) > 0),
      'I4',
      () => `${replicas.length} of ${withRows} replicas with rows count in round ${round}, with ${gradient.backupReplicas} backup replicas`,
    );
  }

  /** After the seed: what lives on must hold nothing any more. */
  afterRun(): void {
    const { cluster } = this;
    const ended = cluster.control.isOver;
    this.nobodyStalled();
    cluster.reference.release();
    for (const { id, process, nodesInUse } of cluster.workers)
      if (ended && process.isAlive) cluster.checks.expect(nodesInUse === 0, 'I10', () => `${id} kept ${nodesInUse} gradients`);
    for (const part of cluster.hosted) {
      // A shard that still waits for an arbiter holds back what was fetched of it.
      part.run.place.replication?.end();
      part.shard.end();
      const leaked = part.memory.release();
      if (ended && part.isRunning) cluster.checks.expect(leaked === 0, 'I10', () => `${part.name} kept ${leaked} bytes of its arena`);
    }
  }

  /** Work that stands still is asked for again; where nothing was lost on its way, somebody has not done his part. */
  private nobodyStalled(): void {
    const { checks, network, run, tables } = this.cluster;
    const asked = (tables as readonly TakenRows[]).filter(({ taken }) => taken.has('askedAgain'));
    const causes = ['eaten frame', 'partition', 'one-way partition', 'servers lose each other', 'lose a worker host'];
    // A primary whose standby has gone without a word holds its shard back until it notices.
    if (run.shape.standby > 0)
      causes.push('kill a server', 'lose a server host', 'stop a server', 'shut a server down', 'lose power', 'break a connection');
    // So does one whose link to it was broken by a flipped bit, but only where the arbiter may have been out of reach.
    if (run.shape.standby > 0 && AWAY_FROM_ARBITER.some((fault) => network.fired.has(fault))) causes.push('bit flip in a frame');
    checks.expect(
      asked.length === 0 || causes.some((cause) => network.fired.has(cause)),
      'liveness',
      () => `a ${asked[0]!.name} had to ask everybody again, and nothing was lost on its way`,
    );
  }

  private shard(part: Part): void {
    const { shard } = part;
    const before = this.shardRounds.get(shard) ?? part.restore?.round ?? 0;
    if (shard.round === before) return;
    this.cluster.checks.expect(shard.round > before, 'I1', () => `the shard of ${part.name} went from round ${before} to ${shard.round}`);
    this.shardRounds.set(shard, shard.round);
  }

  private coordinator(part: Part, coordinator: Coordinator): void {
    const { checks, hosted, reference } = this.cluster;
    const before = this.coordinatorRounds.get(coordinator) ?? { round: part.restore?.round ?? 0, view: 1 };
    if (coordinator.round === before.round && coordinator.view === before.view) return;
    checks.expect(coordinator.round >= before.round, 'I1', () => `the coordinator went from round ${before.round} to ${coordinator.round}`);
    checks.expect(coordinator.view >= before.view, 'I1', () => `the coordinator went from view ${before.view} to ${coordinator.view}`);
    if (coordinator.round > before.round) {
      const committed = coordinator.round - 1;
      for (const other of hosted) {
        // A standby without chunks has nothing to be behind with.
        if (other.attempt !== part.attempt || !other.counts || (other.isStandby && other.memory.chunks.length === 0)) continue;
        const { shard, memory } = other;
        // A primary without chunks counts as reduced, whether it has heard the DECISION or not: there is nothing to decide there.
        const isReduced = memory.chunks.length === 0 || !['GATHERING', 'DECIDING'].includes(shard.table.state);
        const has = shard.round > committed || (shard.round === committed && isReduced);
        checks.expect(
          has,
          'I2',
          () => `round ${committed} was committed, and the shard of ${other.name} is ${shard.table.state} in round ${shard.round}`,
        );
      }
      const { trainedExamples, countedTo = 0 } = coordinator.ledger;
      // The control plane may have stored a round that the coordinator before has committed, and that this one hears of later.
      const counted = Math.max(coordinator.round, countedTo);
      const examples = this.cluster.isFollowed(part) ? reference.examplesBefore(counted) : trainedExamples;
      checks.expect(
        trainedExamples === examples,
        'I4',
        () => `${trainedExamples} examples after ${counted} rounds, updates have ${examples}`,
      );
      this.cluster.runInvariants.committedRounds = Math.max(this.cluster.runInvariants.committedRounds, coordinator.round);
    }
    const held = new Map<number, string>();
    for (const { seat, workerId } of coordinator.seats()) {
      checks.expect(!held.has(seat), 'refusal', () => `seat ${seat} is held by ${held.get(seat)} and ${workerId}`);
      held.set(seat, workerId);
    }
    this.coordinatorRounds.set(coordinator, { round: coordinator.round, view: coordinator.view });
  }
}
