/**
 * Planted mistakes: each is put into a machine of the real class as it is made, and the simulator has to find it. What a mistake
 * costs, which invariant shows it and within how many seeds, stands beside it; the test holds it to that.
 */
import { acquireRegion, type OwnedChunk, type Region, type ShardLink } from '@paceline/exchange';
import type { MessageOf } from '@paceline/protocol';
import type { Invariant } from '../checks/checks.js';
import type { Plant } from '../cluster.js';
import type { FaultKind } from './faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { RunShape } from '../run/tiny-run.js';
import type { RunMode } from '../run/async-run.js';

export interface PlantedBug {
  readonly name: string;
  readonly mistake: string;
  /** Any of these shows it. */
  readonly shownBy: readonly Invariant[];
  /** It must be found within so many seeds, from 1 on. */
  readonly withinSeeds: number;
  /** One that shows it today: tried first. */
  readonly seed?: number;
  readonly kinds: readonly FaultKind[];
  readonly plant: Plant;
  /** The shape that a run needs for the mistake to matter. */
  readonly shape?: Partial<RunShape>;
  /** Mode sync when it is not said. */
  readonly mode?: RunMode;
}

/** Private parts of the machines that a mistake is put into. */
interface OpenShard {
  readonly present: {
    chunkAt(index: number): (OwnedChunk & { readonly place: number }) | undefined;
    readonly generations: { next(place: number): Region | undefined };
  };
  readonly options: {
    readonly attempt: number;
    readonly store: { update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region): void };
  };
}
interface OpenRounds {
  readonly present: { readonly reduced: Set<number> };
  tryCommit(): void;
}
interface OpenStandby {
  readonly options: { readonly shard: { readonly term: number } };
}
interface OpenLinks {
  readonly links: ReadonlyMap<ShardLink, { readonly outlet: { readonly owed: Map<string, unknown>; pump(): void } }>;
}
interface OpenWindow {
  readonly window: { size: number; mustTell(base: number): boolean };
}
interface OpenMember {
  onView(message: MessageOf<'view'>): void;
}

const SIX_CHUNKS = Array.from({ length: 6 }, () => ({ length: 4, section: 'trainable' as const }));

export const PLANTED: readonly PlantedBug[] = [
  {
    name: 'apply twice',
    mistake: 'a shard applies a gradient that comes again after its chunk was applied',
    shownBy: ['I2'],
    withinSeeds: 40,
    seed: 8,
    kinds: ['one-way partition', 'slow a worker', 'add a worker'],
    plant: {
      shard(shard) {
        const machine = shard as unknown as OpenShard;
        const data = shard.data.bind(shard);
        const payloadFor = shard.payloadFor.bind(shard);
        const payloads = new WeakMap<ShardLink, Uint8Array>();
        shard.payloadFor = (link, header) => {
          const payload = payloadFor(link, header);
          payloads.set(link, payload);
          return payload;
        };
        shard.data = (link, header) => {
          const chunk = machine.present.chunkAt(header.chunk)!;
          const next = machine.present.generations.next(chunk.place);
          if (next && header.round === shard.round) {
            const gradient = acquireRegion(chunk.arena, chunk.length);
            gradient.bytes.set(payloads.get(link)!);
            machine.options.store.update(chunk, shard.round, next, next, gradient);
            gradient.release();
          }
          data(link, header);
        };
      },
    },
  },
  {
    name: 'commit before all shards',
    mistake: 'the coordinator commits when all shards but one are reduced',
    shownBy: ['I2'],
    withinSeeds: 10,
    seed: 2,
    kinds: [],
    plant: {
      rounds(rounds, { run }) {
        const machine = rounds as unknown as OpenRounds;
        const tryCommit = machine.tryCommit.bind(rounds);
        machine.tryCommit = () => {
          const { servers } = run.shape;
          if (servers > 1 && machine.present.reduced.size === servers - 1)
            for (let server = 0; server < servers; server++) machine.present.reduced.add(server);
          tryCommit();
        };
      },
    },
  },
  {
    name: 'view ignored in assignment',
    mistake: 'a member goes on with the replicas of its first view: what others lost is computed by nobody',
    shownBy: ['liveness'],
    withinSeeds: 50,
    seed: 3,
    kinds: ['kill a worker', 'add a worker'],
    plant: {
      member(member) {
        const machine = member as unknown as OpenMember;
        const onView = machine.onView.bind(member);
        machine.onView = (message) => {
          if (member.view === 0) onView(message);
        };
      },
    },
  },
  {
    name: 'old frames gathered',
    mistake: 'a shard takes gradients of any round into the tree of the present one',
    shownBy: ['I8'],
    withinSeeds: 30,
    seed: 13,
    kinds: ['stop a worker', 'one-way partition', 'partition', 'break a connection', 'slow a worker'],
    // A round that does not wait for everybody is committed while gradients of it are on their way.
    shape: { replicas: 4, gradient: { nonFinite: 'fail', backupReplicas: 1 } },
    plant: {
      shard(shard) {
        const data = shard.data.bind(shard);
        const payloadFor = shard.payloadFor.bind(shard);
        shard.payloadFor = (link, header) => payloadFor(link, { ...header, round: shard.round });
        shard.data = (link, header) => data(link, { ...header, round: shard.round });
      },
    },
  },
  {
    name: 'fence check dropped',
    mistake: 'HELLO, gradients and messages of an older attempt are taken for those of the present one',
    shownBy: ['I7'],
    withinSeeds: 30,
    seed: 5,
    kinds: ['kill a server', 'replay a connection'],
    plant: {
      believesOldAttempts: true,
      shard(shard) {
        const { attempt } = (shard as unknown as OpenShard).options;
        const payloadFor = shard.payloadFor.bind(shard);
        shard.payloadFor = (link, header) => payloadFor(link, { ...header, attempt });
      },
    },
  },
  {
    name: 'standby promoted without term',
    mistake: 'a standby that the arbiter promotes goes on in the term of its primary',
    shownBy: ['I7'],
    withinSeeds: 10,
    seed: 3,
    kinds: ['kill a server', 'stop a server', 'servers lose each other'],
    shape: { standby: 1, rounds: 9, gradient: STREAMING },
    plant: {
      standby(standby) {
        const machine = standby as unknown as OpenStandby;
        const answered = standby.answered.bind(standby);
        standby.answered = (lead) => answered({ ...lead, term: machine.options.shard.term });
      },
    },
  },
  {
    name: 'a skipped chunk is forgotten',
    mistake: 'a shard does not send the chunks for which the queue of a member had no room',
    shownBy: ['liveness'],
    withinSeeds: 20,
    kinds: [],
    plant: {
      shard(shard) {
        const attach = shard.attach.bind(shard);
        shard.attach = (id, connection) => {
          const link = attach(id, connection);
          const { outlet } = (shard as unknown as OpenLinks).links.get(link)!;
          const pump = outlet.pump.bind(outlet);
          outlet.pump = () => {
            pump();
            outlet.owed.clear();
          };
          return link;
        };
      },
    },
  },
  {
    name: 'a credit is lost',
    mistake: 'a shard does not tell its members that its window has moved on',
    shownBy: ['liveness'],
    withinSeeds: 20,
    kinds: [],
    shape: { servers: 1, chunks: SIX_CHUNKS, gradient: STREAMING },
    plant: {
      shard(shard) {
        (shard as unknown as OpenWindow).window.mustTell = () => false;
      },
    },
  },
  {
    name: 'a window is granted twice',
    mistake: 'a shard takes twice as many chunks ahead as it has memory for',
    shownBy: ['I10'],
    withinSeeds: 20,
    kinds: [],
    shape: { servers: 1, chunks: SIX_CHUNKS, gradient: STREAMING },
    plant: {
      shard(shard) {
        const { window } = shard as unknown as OpenWindow;
        Object.assign(window, { size: 2 * window.size });
      },
    },
  },
  {
    name: 'rename before fsync',
    mistake: 'files of a checkpoint, and the folder that names them, are not synced before they count as written',
    shownBy: ['I5'],
    withinSeeds: 30,
    seed: 6,
    kinds: ['lose power'],
    shape: { checkpointEveryRounds: 1, rounds: 12 },
    plant: { disk: { ignoresSync: true } },
  },
];
