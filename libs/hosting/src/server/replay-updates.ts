/**
 * Updates of recorded gradients, as a server applies them: the store of a shard with its kernels, and the verdict of a coordinator over the norms.
 * For comparing with what another program has done (`paceline verify`).
 */
import { acquireRegion, type RoundDecision } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import { createLayout, judgeRound, judgeTrust } from '@paceline/learning';
import { isLayerwise, type OptimizerSpec, type RunSpec } from '@paceline/spec';
import { ParameterStore } from './parameter-store.js';

export interface RecordedUpdates {
  readonly optimizer: OptimizerSpec;
  readonly gradient: Pick<RunSpec['gradient'], 'clipNorm' | 'clipGlobalNorm' | 'clipValue'>;
  /** Initial values of one variable. */
  readonly initial: readonly number[];
  /** Per step; each as long as `initial`. */
  readonly gradients: readonly (readonly number[])[];
}

/** The weights after every step. */
export function* replayUpdates({ optimizer, gradient: rules, initial, gradients }: RecordedUpdates): Generator<Float32Array, void, void> {
  const { clipNorm, clipGlobalNorm, clipValue } = rules;
  const variable = {
    path: 'recorded/weights',
    shape: [initial.length],
    section: 'trainable',
    initializer: { className: 'Zeros', config: {} },
  } as const;
  const model = { variables: [variable], inputs: [], outputs: [], parameterCount: initial.length, stateCount: 0 };
  const layout = createLayout(model);
  const store = new ParameterStore({
    layout,
    owned: layout.chunks.map(({ index }) => index),
    model,
    seed: 0,
    gradientsInFlight: 1,
    examplesIn: () => 1,
    optimizer,
    clipValue,
    createArena: (options) => Arena.create(options),
  });
  for (const _ of store.begin()); // nothing else runs here that would want its turn
  const places = store.chunks.map((chunk, i) => ({
    chunk,
    offset: layout.chunks[chunk.index]!.offset,
    from: store.initial[i]!,
    to: acquireRegion(chunk.arena, chunk.length),
    gradient: acquireRegion(chunk.arena, chunk.length),
  }));
  for (const { from, offset, chunk } of places) from.floats.set(initial.slice(offset, offset + chunk.length));
  const isDecided = clipNorm !== undefined || clipGlobalNorm !== undefined || isLayerwise(optimizer);
  for (const [round, values] of gradients.entries()) {
    for (const { gradient, offset, chunk } of places) gradient.floats.set(values.slice(offset, offset + chunk.length));
    let decision: RoundDecision | undefined;
    if (isDecided) {
      const scalars = places.map(({ chunk, gradient, from }) => ({ chunk: chunk.index, ...store.measure(chunk, gradient, from, round) }));
      const { scale, variables } = isLayerwise(optimizer)
        ? judgeTrust(scalars, 1, optimizer)
        : judgeRound(scalars, 1, { clipNorm, clipGlobalNorm });
      decision = { skip: false, examples: 1, scale, variables: variables.map(([index, factor]): [number, number] => [index, factor]) };
    }
    const weights = new Float32Array(initial.length);
    for (const place of places) {
      store.update(place.chunk, round, place.from, place.to, place.gradient, decision);
      [place.from, place.to] = [place.to, place.from];
      weights.set(place.from.floats, place.offset);
    }
    yield weights;
  }
}
