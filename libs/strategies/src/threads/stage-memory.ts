/** Where a model in stages lies: each stage in an arena of its own, so that a model may be larger than one arena. */
import type { Arena } from '@paceline/kernels';
import { layoutOfPart, type Layout } from '@paceline/learning';
import type { ModelDescription } from '@paceline/spec';
import type { FlatValues } from '../exchange.js';
import { placed, type Placing } from './model-memory.js';
import { flowBytes, lossesOfStages, sumsBytes, vectorsOf } from './pipeline.js';
import type { DescribedStage, ModelMemory, OpenPipeline, Pipeline } from './protocol.js';

/** A run of elements of the whole model that lies in one stage. */
interface Piece {
  readonly offset: number;
  readonly values: Float32Array;
}

/** A vector of the whole model, whose variables lie in the arenas of their stages. */
class StagedValues implements FlatValues {
  /** @param pieces in order, without gaps */
  constructor(private readonly pieces: readonly Piece[]) {}

  slice(from: number, to: number): Float32Array {
    const copy = new Float32Array(to - from);
    this.each(from, to, (part, at) => copy.set(part, at));
    return copy;
  }

  set(values: ArrayLike<number>, offset: number): void {
    const given = values instanceof Float32Array ? values : Float32Array.from(values);
    this.each(offset, offset + given.length, (part, at) => part.set(given.subarray(at, at + part.length)));
  }

  private each(from: number, to: number, take: (part: Float32Array, at: number) => void): void {
    for (const { offset, values } of this.pieces) {
      const [first, end] = [Math.max(from, offset), Math.min(to, offset + values.length)];
      if (first < end) take(values.subarray(first - offset, end - offset), first - from);
    }
  }
}

export interface PlacedStages {
  readonly memories: readonly ModelMemory[];
  readonly parameters: FlatValues;
  readonly slots: readonly FlatValues[];
}

/** What compute threads are told of the stages. */
export const openedStages = (pipeline: Pipeline, stages: readonly DescribedStage[], memories: readonly ModelMemory[]): OpenPipeline => ({
  ...pipeline,
  cutAfter: stages.flatMap(({ end }) => end ?? []), // so nobody balances them again
  memories,
  variables: stages.map(({ variables }) => variables),
  flow: new SharedArrayBuffer(flowBytes(pipeline)),
  sums: new SharedArrayBuffer(sumsBytes(pipeline)),
});

/** @param layout of the whole model @throws UnsupportedError for a stage that is too large */
export function placedStages(
  layout: Layout,
  description: ModelDescription,
  stages: readonly DescribedStage[],
  pipeline: Pipeline,
  { share, slots }: Pick<Placing, 'share' | 'slots'>,
): PlacedStages {
  const placings: { readonly own: Layout; readonly arena: Arena; readonly memory: ModelMemory }[] = [];
  for (const { variables } of stages) {
    const own = layoutOfPart(description, variables);
    const sizes = {
      gradients: vectorsOf(pipeline).reduce((sum, vectors) => sum + vectors, 0),
      pipelines: pipeline.pipelines,
      losses: lossesOfStages(pipeline),
      first: placings[0]?.memory,
    };
    placings.push({ own, ...placed(own, { share, slots, placement: undefined, isLocal: false, stage: sizes }) });
  }
  const placeOf = new Map(
    placings.flatMap(({ own, arena, memory }) => own.variables.map((variable) => [variable.path, { variable, arena, memory }])),
  );
  const vector = (variables: Layout['variables'], pointerOf: (memory: ModelMemory) => number): FlatValues =>
    new StagedValues(
      variables.map(({ path, offset }) => {
        const { variable, arena, memory } = placeOf.get(path)!;
        return { offset, values: arena.f32(pointerOf(memory) + variable.offset * 4, variable.length) };
      }),
    );
  const trainable = layout.variables.filter(({ section }) => section === 'trainable');
  return {
    memories: placings.map(({ memory }) => memory),
    parameters: vector(layout.variables, ({ parameters }) => parameters),
    slots: slots.map((_, s) => vector(trainable, (memory) => memory.slots[s]!)),
  };
}
