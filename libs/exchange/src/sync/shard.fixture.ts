/** For tests of a shard in mode sync: one of a few chunks with real arenas and trees, whose optimizer takes the sum away. */
import { Arena } from '@paceline/kernels';
import { ReductionTree, validNode } from '@paceline/learning';
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion } from '../attempt/regions.js';
import type { ShardLink } from '../transfer/shard-transfer.js';
import { Shard } from './shard.js';

const LENGTH = 4;

export interface Frame {
  readonly chunk: number;
  readonly replica: number;
  readonly round?: number;
  readonly view?: number;
}

const headerOf = ({ chunk, replica, round = 0, view = 1 }: Frame): FrameHeader => ({
  type: FrameType.gradient,
  codec: 0,
  flags: 0,
  attempt: 1,
  term: 1,
  view,
  round,
  nodeLo: replica,
  nodeHi: replica + 1,
  chunk,
  length: LENGTH * 4,
  payloadChecksum: 0,
});

export interface Peer {
  readonly link: ShardLink;
  /** What it was told, without parameters. */
  readonly heard: Message[];
  push(frame: Frame): void;
}

export function shardOf(chunks: number, replicas: number, gradientWindowChunks?: number) {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const initial = Array.from({ length: chunks }, () => {
    const region = acquireRegion(arena, LENGTH);
    region.floats.fill(0);
    return region;
  });
  const told: Message[] = [];
  const shard = new Shard({
    index: 0,
    attempt: 1,
    replicas,
    chunks: initial.map((_, index) => ({ index, length: LENGTH, arena })),
    initial,
    createReduction: (operations) => new ReductionTree(replicas, operations),
    isValidNode: (lo, hi) => validNode(replicas, lo, hi),
    store: { update: (_chunk, _round, from, to, sum) => to.floats.forEach((_, i) => (to.floats[i] = from.floats[i]! - sum.floats[i]!)) },
    coordinator: { tell: (message) => void told.push(message) },
    gradientWindowChunks,
  });
  const peer = (id: string): Peer => {
    const heard: Message[] = [];
    const connection = {
      isOpen: true,
      queuedBytes: 0,
      sendMessage: (message: Message) => void heard.push(message),
      sendData: (_header: unknown, _bytes: Uint8Array, done: () => void) => done(),
      close: () => undefined,
    } as unknown as Connection;
    const link = shard.attach(id, connection);
    const push = (frame: Frame): void => {
      const header = headerOf(frame);
      shard.payloadFor(link, header).fill(0);
      shard.data(link, header);
    };
    return { link, heard, push };
  };
  return { shard, arena, told, peer };
}
