/** For tests of a shard in mode sync: one of a few chunks with real arenas, whose trees take leaves alone, and whose optimizer takes the sum away. */
import { Arena } from '@paceline/kernels';
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion, type Region, type regionSum } from '../attempt/regions.js';
import type { ChunkDecoder } from '../transfer/chunk-frames.js';
import type { ShardLink } from '../transfer/shard-transfer.js';
import { Shard } from './shard.js';
import type { ChunkReduction } from './shard-table.js';

const LENGTH = 4;

export interface Frame {
  readonly chunk: number;
  readonly replica: number;
  readonly round?: number;
  readonly view?: number;
  /** Of each element. */
  readonly value?: number;
}

export const headerOf = ({ chunk, replica, round = 0, view = 1 }: Frame): FrameHeader => ({
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

/** Adds leaves up in their order, when all have come. */
class LeafTree implements ChunkReduction {
  private readonly leaves = new Map<number, Region>();

  constructor(
    private readonly replicas: number,
    private readonly operations: typeof regionSum,
  ) {}

  covers({ lo }: { lo: number }): boolean {
    return this.leaves.has(lo);
  }

  insert({ lo }: { lo: number }, region: Region): 'dropped' | 'kept' | 'complete' {
    if (this.leaves.has(lo)) {
      region.release();
      return 'dropped';
    }
    this.leaves.set(lo, region);
    return this.leaves.size === this.replicas ? 'complete' : 'kept';
  }

  takeRoot(): Region {
    const [root, ...others] = [...this.leaves].sort(([a], [b]) => a - b).map(([, region]) => region);
    this.leaves.clear();
    for (const other of others) {
      this.operations.add(root!, other);
      this.operations.release(other);
    }
    return root!;
  }

  get isEmpty(): boolean {
    return this.leaves.size === 0;
  }

  missingLeaves(): number[] {
    return Array.from({ length: this.replicas }, (_, replica) => replica).filter((replica) => !this.leaves.has(replica));
  }

  dispose(): void {
    for (const region of this.leaves.values()) region.release();
    this.leaves.clear();
  }
}

export interface Peer {
  readonly link: ShardLink;
  /** What it was told, without parameters. */
  readonly heard: Message[];
  push(frame: Frame): void;
}

export function shardOf(
  chunks: number,
  replicas: number,
  gradientWindowChunks?: number,
  canReplaceGradient = false,
  further: { readonly twoPhase?: { readonly hasBackups: boolean }; readonly decoder?: ChunkDecoder } = {},
) {
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
    createReduction: (operations) => new LeafTree(replicas, operations),
    isValidNode: (lo, hi) => hi === lo + 1 && hi <= replicas,
    store: {
      canReplaceGradient: () => canReplaceGradient,
      measure: () => ({ isFinite: true, squares: [] }),
      update: (_chunk, _round, from, to, sum) => to.floats.forEach((_, i) => (to.floats[i] = from.floats[i]! - sum.floats[i]!)),
    },
    coordinator: { tell: (message) => void told.push(message) },
    gradientWindowChunks,
    ...further,
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
      const bytes = shard.payloadFor(link, header);
      new Float32Array(bytes.buffer, bytes.byteOffset, LENGTH).fill(frame.value ?? 0);
      shard.data(link, header);
    };
    return { link, heard, push };
  };
  return { shard, arena, told, peer };
}
