/** The members of a run and the replicas that each computes: who is there, and who should compute what. Decides nothing by itself. */
import type { Members, Message, MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { ReceivedBytes } from '../transports/received-bytes.js';
import { balancedAssignment, coverOrphans, sameAssignment, weightedAssignment } from './assignment.js';

export interface CoordinatedMember {
  readonly id: string;
  readonly host: string;
  readonly seat: number;
  readonly incarnation: number;
  /** Examples per second, where engines are mixed. */
  readonly speed: number | undefined;
  readonly connection: Connection;
  readonly received: ReceivedBytes;
  up: boolean;
  /** Shards whose socket to this member is closed. */
  readonly brokenShards: Set<number>;
  awaySinceMs: number | undefined;
  leaving: string | undefined;
  lastHeardMs: number;
  progress: number;
  /** As its last heartbeat says: it computes, sends and receives nothing; and it was given nothing since. */
  rests: boolean;
  lastProgressMs: number;
  replicas: number[];
  /** What it owed when it went away: losses of these count if it is lost in the same round. */
  owed: { readonly round: number; readonly replicas: readonly number[] } | undefined;
}

type Assignment = ReadonlyMap<string, number[]>;

/** It has its whole step deadline for what it is given, however long it had nothing to do. */
export function givenWork(member: CoordinatedMember, nowMs: number): void {
  member.lastProgressMs = nowMs;
  member.rests = false;
}

export class Membership {
  private readonly members = new Map<string, CoordinatedMember>();

  /** 0 .. R−1. */
  readonly replicas: readonly number[];

  constructor(
    count: number,
    private readonly now: () => number,
    /** EF21: what is kept of a replica is gone with who has it. A member that is away keeps its replicas until it is lost. */
    private readonly waitsForAway = false,
  ) {
    this.replicas = Array.from({ length: count }, (_, replica) => replica);
  }

  get(id: string): CoordinatedMember | undefined {
    return this.members.get(id);
  }

  all(): CoordinatedMember[] {
    return [...this.members.values()];
  }

  /** Those that compute: connected everywhere, as far as is known. */
  live(): CoordinatedMember[] {
    return this.all().filter(isLive);
  }

  /** Somebody is away, and has replicas still. */
  get hasAway(): boolean {
    return this.all().some((member) => !isLive(member) && member.replicas.length > 0);
  }

  /**
   * As VIEW and COMMIT name them: the live ones, and who is away with replicas that nobody could take. Those are in the present view, which
   * has not changed with their going; a server that was told otherwise under its number would drop what they send when they are back.
   */
  list(): Members {
    const named = this.all().filter((member) => isLive(member) || member.replicas.length > 0);
    return named.map(({ id, seat, incarnation, replicas }) => ({ id, seat, incarnation, replicas }));
  }

  holderOf(seat: number): CoordinatedMember | undefined {
    return this.all().find((member) => member.seat === seat);
  }

  /** Takes a worker in, or back with the replicas that it had. */
  add(hello: MessageOf<'hello'>, connection: Connection): void {
    const { id, host, seat, incarnation, speed } = hello;
    const previous = this.members.get(id);
    const now = this.now();
    this.members.set(id, {
      id,
      host,
      seat,
      incarnation,
      speed,
      connection,
      received: new ReceivedBytes(connection),
      up: true,
      brokenShards: new Set<number>(),
      awaySinceMs: undefined,
      leaving: undefined,
      lastHeardMs: now,
      progress: previous?.progress ?? -1,
      rests: false,
      lastProgressMs: now,
      replicas: previous?.replicas ?? [],
      owed: undefined,
    });
  }

  remove(id: string): boolean {
    return this.members.delete(id);
  }

  /** Also to members that are away because a shard lost them: they stay in step and know that nothing is theirs. */
  send(message: Message, numbers: FrameNumbers): void {
    for (const member of this.members.values()) if (member.up) member.connection.sendMessage(message, numbers);
  }

  /** In the middle of a round: gives replicas without a live holder to the live members. False when there is nothing to do. */
  cover(): boolean {
    const assignment = this.covering();
    if (assignment) this.assign(assignment);
    return assignment !== undefined;
  }

  private covering(): Assignment | undefined {
    const live = this.live();
    const holders = this.waitsForAway ? this.all() : live;
    const held = new Set(holders.flatMap((member) => member.replicas));
    const orphans = this.replicas.filter((replica) => !held.has(replica));
    if (live.length === 0 || orphans.length === 0) return undefined;
    const staying = live.filter(({ leaving }) => leaving === undefined);
    const takers = staying.length > 0 ? staying : live;
    if (orphans.length === this.replicas.length) return this.balanced(takers);
    const replicasOf = (members: readonly CoordinatedMember[]): [string, number[]][] => members.map(({ id, replicas }) => [id, replicas]);
    // A member that leaves keeps what it has to the end of the round: it is computing that.
    return new Map([...replicasOf(holders), ...coverOrphans(new Map(replicasOf(takers)), orphans)]);
  }

  /** The live member that has each replica. */
  holders(): Map<number, CoordinatedMember> {
    return new Map(this.live().flatMap((member) => member.replicas.map((replica) => [replica, member] as const)));
  }

  /** Between rounds: balanced blocks over `staying`. False when that is what they have. */
  rebalance(staying: readonly CoordinatedMember[]): boolean {
    const target = this.balanced(staying);
    const present = this.all().filter(({ id, replicas }) => replicas.length > 0 || target.has(id));
    if (sameAssignment(new Map(present.map(({ id, replicas }) => [id, replicas])), target)) return false;
    this.assign(target);
    return true;
  }

  private assign(assignment: Assignment): void {
    for (const member of this.members.values()) {
      const replicas = assignment.get(member.id) ?? [];
      if (replicas.some((replica) => !member.replicas.includes(replica))) givenWork(member, this.now());
      member.replicas = replicas;
    }
  }

  private balanced(members: readonly CoordinatedMember[]): Assignment {
    const ids = members.map(({ id }) => id);
    const speeds = members.flatMap(({ speed }) => speed ?? []);
    if (speeds.length === 0) return balancedAssignment(ids, this.replicas.length);
    const mean = speeds.reduce((a, b) => a + b, 0) / speeds.length;
    return weightedAssignment(
      members.map(({ id, speed = mean }) => ({ id, speed })),
      this.replicas.length,
    );
  }
}

const isLive = ({ up, awaySinceMs }: CoordinatedMember): boolean => up && awaySinceMs === undefined;
