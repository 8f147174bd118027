/** Where everything of a model lies in the memory that the threads of a process share. */
import { Arena, type SharedMemory } from '@paceline/kernels';
import type { Layout } from '@paceline/learning';
import { UnsupportedError } from '../errors.js';
import type { Placement } from '../members/group-link.js';
import { HEADER, SETS, slotRange, type ModelMemory, type Share } from './protocol.js';

const LINE_BYTES = 64;
const MOST_BYTES = 2 ** 30;
/** The allocator's own rounding. */
const SLACK_BYTES = 1 << 16;

export interface Placing {
  readonly share: Share;
  /** What each slot begins with. */
  readonly slots: readonly number[];
  /** With other processes. */
  readonly placement: Placement | undefined;
  /** Every replica has parameters and slots of its own. */
  readonly isLocal: boolean;
  /** Elements of the longest fragment, where replicas exchange one at a time. */
  readonly fragmentLength?: number;
  /** What is placed is a stage of a model. */
  readonly stage?: StageSizes;
}

export interface StageSizes {
  /** Vectors of gradients, of all pipelines. */
  readonly gradients: number;
  readonly pipelines: number;
  /** Losses of a step, of all stages. */
  readonly losses: number;
  /** The memory of the first stage, whose numbers and losses all stages have in common. */
  readonly first: ModelMemory | undefined;
}

const adviceFor = ({ pipelines }: StageSizes): string =>
  pipelines > 1 ? 'more stages, fewer pipelines, or fewer micro-batches' : 'more stages, or fewer micro-batches';

/** All of a model in one arena: parameters, slots, a gradient for each replica of this process, and what other processes send. */
export function placed(layout: Layout, sizes: Placing): { arena: Arena; memory: ModelMemory } {
  const { share, slots, placement, isLocal, fragmentLength = 0, stage } = sizes;
  const { scratch, own } = placement ?? { scratch: 0, own: undefined };
  const slotLength = slotRange(own, layout.trainableLength).length;
  const replicas = share.to - share.from;
  const { gradients, losses, first } = stage ?? { gradients: replicas, losses: share.replicas, first: undefined };
  const largest = Math.max(...layout.chunks.map(({ length }) => length));
  const alone = isLocal ? replicas : 0;
  const lengths = [
    layout.totalLength * (1 + gradients + alone),
    slotLength * slots.length,
    layout.trainableLength * (slots.length * alone + (isLocal ? 1 : 0)),
    fragmentLength * alone,
    largest,
    scratch,
  ];
  const lines = (1 + alone) * (2 + slots.length) + gradients + 4;
  const bytes = lengths.reduce((sum, length) => sum + length * 4, 0) + LINE_BYTES * lines + SLACK_BYTES;
  if (bytes > MOST_BYTES)
    throw new UnsupportedError(
      'the size of the model',
      `${layout.totalLength} parameters${stage ? ' of a stage' : ''} with ${slots.length} slots and ${stage ? `${gradients} vectors of gradients` : `${replicas} replicas`} take ${Math.ceil(bytes / 2 ** 20)} MiB of shared memory, and a ${stage ? 'stage' : 'strategy'} has 1024 MiB: use ${stage ? adviceFor(stage) : 'fewer replicas'}`,
    );
  const arena = Arena.create({ initialBytes: bytes, maximumBytes: MOST_BYTES });
  const filled = (length: number, value: number): number => {
    const pointer = arena.alloc(length * 4);
    arena.kernels.fill(pointer, length, value);
    return pointer;
  };
  const memory = {
    arena: arena.memory as SharedMemory,
    parameters: filled(layout.totalLength, 0),
    gradients: Array.from({ length: gradients }, () => filled(layout.totalLength, 0)),
    slots: slots.map((value) => filled(slotLength, value)),
    own,
    zeros: filled(largest, 0),
    header: first?.header ?? new SharedArrayBuffer(SETS * HEADER * 8),
    losses: first?.losses ?? new SharedArrayBuffer(SETS * losses * 8),
    scratch: scratch > 0 ? filled(scratch, 0) : 0,
    local: isLocal
      ? {
          parameters: Array.from({ length: replicas }, () => filled(layout.totalLength, 0)),
          slots: Array.from({ length: replicas }, () => slots.map((value) => filled(layout.trainableLength, value))),
          velocity: filled(layout.trainableLength, 0),
          fragments: Array.from({ length: fragmentLength > 0 ? replicas : 0 }, () => filled(fragmentLength, 0)),
        }
      : undefined,
  };
  return { arena, memory };
}
