/** Planted mistakes of modes async and ssp; planted.ts says what they are for. */
import type { ShardLink, WorkItem } from '@paceline/exchange';
import type { FrameHeader } from '@paceline/protocol';
import type { PlantedBug } from './planted.js';

/** Private parts of the machines that a mistake is put into. */
interface OpenShard {
  readonly links: ReadonlyMap<ShardLink, { readonly arriving: ReadonlyMap<number, { readonly regions: ReadonlyMap<number, object> }> }>;
  finish(item: WorkItem): void;
  tellApplied(item: WorkItem, staleness: number): void;
  whenReplicated: (act: () => void) => void;
}
interface OpenItems {
  tryCount(issued: { readonly shards: Set<number> }): void;
  readonly present: { readonly source: { readonly clocks: number[]; next(replicas: readonly number[]): unknown } };
}

export const PLANTED_ASYNC: readonly PlantedBug[] = [
  {
    name: 'bit before the last chunk',
    mistake: 'a shard marks a work item and says APPLIED when all of its chunks but one have come',
    shownBy: ['I2'],
    withinSeeds: 10,
    kinds: [],
    mode: 'async',
    plant: {
      asyncShard(shard, { run }) {
        const machine = shard as unknown as OpenShard;
        const data = shard.data.bind(shard);
        shard.data = (link: ShardLink, header: FrameHeader) => {
          data(link, header);
          const item = { round: header.round, replica: header.nodeLo };
          const gradient = machine.links.get(link)?.arriving.get(shard.marks.numberOf(item));
          if (gradient?.regions.size !== Math.floor(run.layout.chunks.length / run.shape.servers) - 1) return;
          machine.finish(item);
          machine.tellApplied(item, 0);
        };
      },
    },
  },
  {
    name: 'counted at one shard',
    mistake: 'the coordinator counts a work item when the first shard is done with it',
    shownBy: ['I2'],
    withinSeeds: 10,
    seed: 3,
    kinds: [],
    mode: 'async',
    plant: {
      workItems(items, { run }) {
        const machine = items as unknown as OpenItems;
        const tryCount = machine.tryCount.bind(items);
        machine.tryCount = (issued) => {
          if (issued.shards.size > 0) for (let server = 0; server < run.shape.servers; server++) issued.shards.add(server);
          tryCount(issued);
        };
      },
    },
  },
  {
    name: 'clock not moved with its replica',
    mistake:
      'in mode ssp the clocks of replicas that a member does not hold are not looked at: who takes over a replica goes ahead of the others',
    shownBy: ['I3'],
    withinSeeds: 20,
    seed: 5,
    kinds: ['kill a worker', 'slow a worker', 'add a worker'],
    mode: 'ssp',
    plant: {
      workItems(items) {
        const { source } = (items as unknown as OpenItems).present;
        const next = source.next.bind(source);
        source.next = (replicas) => {
          const clocks = [...source.clocks];
          const own = Math.min(...replicas.map((replica) => clocks[replica]!));
          clocks.forEach((clock, replica) => (source.clocks[replica] = replicas.length > 0 ? Math.max(clock, own) : clock));
          const item = next(replicas);
          clocks.forEach((clock, replica) => (source.clocks[replica] = clock));
          return item;
        };
      },
    },
  },
  {
    name: 'replied before the standby had it',
    mistake: 'in modes async and ssp a primary says APPLIED before its standby has acknowledged the work item',
    shownBy: ['I2'],
    withinSeeds: 5,
    kinds: [],
    mode: 'async',
    shape: { standby: 1 },
    plant: {
      asyncShard(shard) {
        const machine = shard as unknown as OpenShard;
        machine.whenReplicated = (act) => act();
      },
    },
  },
];
