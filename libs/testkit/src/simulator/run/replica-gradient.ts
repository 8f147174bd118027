/**
 * The gradient of a replica in a plain run: its local steps, where it takes some, and what a codec makes of it. With codecs and local steps that keep
 * nothing from one round to the next this is a pure function, and the reference has it from here; workers have encoders and slots of their own
 * (actors/replica-work.ts).
 */
import { codecKey, codecOf, parameterCodecOf } from '@paceline/codecs';
import type { Arena } from '@paceline/kernels';
import { LocalUpdates } from '@paceline/learning';
import { movingRate, rateFactor } from '@paceline/spec';
import { scratchArena, type TinyRun } from './tiny-run.js';

const FLOAT_BYTES = 4;

/** The local steps of replicas; undefined where a round is one gradient. */
export function localUpdatesOf({ spec, layout, schedule, isExchanged }: TinyRun, arena: Arena): LocalUpdates | undefined {
  const { strategy, optimizer, gradient: clip, freeze, learningRate, globalBatch } = spec;
  if (strategy.kind !== 'local-update') return undefined;
  const { localSteps, innerState } = strategy;
  const factor = rateFactor(learningRate, { globalBatch, ...schedule });
  const keepsSlots = innerState === 'keep';
  return new LocalUpdates({
    arena,
    layout,
    optimizer,
    clip,
    freeze,
    keepsSlots,
    movingRate: movingRate(spec),
    isExchanged,
    localSteps,
    rateFactor: factor,
  });
}

/** All steps of a replica in a round, from the weights of its generation. @param last called before the last step is over @returns the outer gradient */
export function localGradient(
  run: TinyRun,
  updates: LocalUpdates,
  arena: Arena,
  { round, replica, start }: { readonly round: number; readonly replica: number; readonly start: Float32Array },
  spoil: (gradient: Float32Array) => void = () => undefined,
  last: () => void = () => undefined,
): Float32Array {
  const steps = run.stepsIn(round);
  const out = arena.alloc(start.length * FLOAT_BYTES);
  updates.run({ round, replica, steps, start, out }, (localStep, weights, gradient) => {
    run.step(weights, round, replica, gradient, localStep);
    spoil(gradient);
    if (localStep === steps - 1) last();
    return run.stepExamples(round, replica, localStep);
  });
  const gradient = arena.f32(out, start.length).slice();
  arena.free(out);
  // A replica without rows takes no step.
  spoil(gradient);
  return gradient;
}

/** Writes values into an arena, lets `act` make others of them at a second place, and takes those. */
export function through(
  values: Float32Array,
  bytes: number,
  act: (arena: Arena, from: number, between: number, to: number) => boolean,
): Float32Array {
  const arena = scratchArena();
  const [from, between, to] = [arena.alloc(values.byteLength), arena.alloc(Math.max(bytes, FLOAT_BYTES)), arena.alloc(values.byteLength)];
  arena.f32(from, values.length).set(values);
  const made = act(arena, from, between, to) ? arena.f32(to, values.length).slice() : values.slice();
  for (const pointer of [from, between, to]) arena.free(pointer);
  return made;
}

/** What a server decodes of a gradient without residual. */
export function decodedGradient({ spec, layout, schedule, shape }: TinyRun, round: number, replica: number, gradient: Float32Array) {
  const codec = codecOf(spec.codec, layout);
  if (!codec) return gradient;
  const ofRound = codec.at?.(round) ?? codec;
  const examples = schedule.round(round).count / shape.replicas;
  const decoded = gradient.slice();
  for (const { index, section, offset, length: n } of layout.chunks) {
    if (section === 'state') continue;
    const key = codecKey(spec.seed, round, replica, index);
    const values = gradient.subarray(offset, offset + n);
    const made = through(values, ofRound.maxBytes(n), (arena, from, between, to) => {
      const bytes = ofRound.encode(arena, from, between, n, key, examples);
      return bytes > 0 && codec.decode(arena, between, bytes, to, n, key);
    });
    decoded.set(made, offset);
  }
  return decoded;
}

/** What workers are sent of a generation. */
export function publishedParameters({ spec, layout }: TinyRun, generation: number, weights: Float32Array): Float32Array {
  const codec = parameterCodecOf(spec.codec, spec.seed);
  if (!codec) return weights;
  const published = weights.slice();
  for (const { index, section, offset, length: n } of layout.chunks) {
    if (section === 'state') continue;
    const made = through(weights.subarray(offset, offset + n), 0, (arena, from, _, to) => {
      const { pointer, bytes } = codec.encode(arena, from, n, generation, index);
      const isDecoded = codec.decode(arena, pointer, bytes, to, n, generation, index);
      arena.free(pointer);
      return isDecoded;
    });
    published.set(made, offset);
  }
  return published;
}
