/** Where a model lies for its trainer: in one arena, which is made anew when this process gets other replicas. */
import type { Layout } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import { ThreadError, UnsupportedError } from '../errors.js';
import type { FlatValues } from '../exchange.js';
import { fragmentsOf, layersOf } from './fragments.js';
import { placed, type Placing } from './model-memory.js';
import type { DescribedStage, ModelMemory } from './protocol.js';
import { Slots } from './slots.js';

/** A model, and its stages where it is cut. */
export interface Described {
  readonly description: ModelDescription;
  readonly stages: readonly DescribedStage[] | undefined;
}

/** What the optimizer keeps, as the trainer sees it. */
export interface KeptSlots extends Pick<Slots, 'staged' | 'unstage'> {
  whole(gather: (into: readonly SharedArrayBuffer[]) => void): readonly FlatValues[];
}

/** Where a model lies. */
export interface Laid {
  readonly memory: ModelMemory;
  readonly common: FlatValues;
  readonly kept: KeptSlots;
}

/** Every process has whole slots. */
export const noParts = (): never => {
  throw new ThreadError('slots in parts cannot be laid out anew');
};

export function inOneArena(layout: Layout, placing: Placing): Laid {
  const { arena, memory } = placed(layout, placing);
  const common = arena.f32(memory.parameters, layout.totalLength);
  return { memory, common, kept: new Slots(placing.slots, layout.trainableLength, memory, arena) };
}

/** Slots that are read and written where they lie. */
export const inPlace = (slots: readonly FlatValues[]): KeptSlots => ({
  whole: () => slots,
  staged: () => undefined,
  unstage: () => undefined,
});

/** Elements of each fragment. @throws UnsupportedError */
export function fragmentLengths(layout: Layout, fragments: number): number[] {
  const layers = layersOf(layout).length;
  if (fragments > layers)
    throw new UnsupportedError(
      `a model in ${fragments} fragments`,
      `it has ${layers} ${layers === 1 ? 'layer' : 'layers'} with weights, and a layer is not divided: set fragments to at most ${layers}`,
    );
  return fragmentsOf(layout, fragments).map(({ length }) => length);
}
