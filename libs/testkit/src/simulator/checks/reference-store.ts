/** The ParameterStore of libs/hosting with all chunks of a run: what one server makes of its rounds when nothing happens to it. */
import { acquireRegion, type Region, type RoundDecision } from '@paceline/exchange';
import { ParameterStore } from '@paceline/hosting';
import { judgeRound, judgeTrust } from '@paceline/learning';
import { appliedByServers, isLayerwise, roundPlan } from '@paceline/spec';
import { giveArena, takeArena, type TinyRun } from '../run/tiny-run.js';

export class ReferenceStore extends ParameterStore {
  private constructor(
    private readonly run: TinyRun,
    private readonly arena = takeArena(),
    private readonly rate = { factor: 1 },
  ) {
    const { layout, model, schedule, spec } = run;
    super({
      layout,
      model,
      owned: layout.chunks.map(({ index }) => index),
      optimizer: appliedByServers(spec).optimizer,
      seed: spec.seed,
      gradientsInFlight: 1,
      examplesIn: (round) => schedule.round(round).count,
      lastRound: schedule.totalRounds - 1,
      rateFactor: () => rate.factor,
      createArena: () => arena,
    });
  }

  static of(run: TinyRun): ReferenceStore {
    const store = new ReferenceStore(run);
    for (const step of store.begin()) void step;
    for (const region of store.initial) region.release();
    return store;
  }

  /** The optimizer's slots, one after the other: a copy. */
  savedSlots(): Float32Array[] {
    return this.slotRegions().map(({ pointer, length }) => this.arena.f32(pointer, length).slice());
  }

  loadSlots(saved: readonly Float32Array[]): void {
    for (const [i, { pointer, length }] of this.slotRegions().entries()) this.arena.f32(pointer, length).set(saved[i]!);
  }

  /**
   * The weights after a round.
   * @param sum of the gradients that count; undefined where the round is left out
   * @param rate what validations have made of the learning rate
   * @param decisionOf plan two-phase: what was decided, by chunk; without it that follows from the sum
   */
  after(
    round: number,
    weights: Float32Array,
    sum: Float32Array | undefined,
    examples: number,
    rate: number,
    decisionOf?: (chunk: number) => RoundDecision | undefined,
  ): Float32Array {
    this.rate.factor = rate;
    const next = new Float32Array(weights.length);
    const params = this.regionsOf(weights);
    const gradients = sum && this.regionsOf(sum);
    const decision = decisionOf ? undefined : gradients && this.decide(round, params, gradients, examples);
    for (const [i, chunk] of this.chunks.entries()) {
      if (this.run.isExchanged?.(round, chunk.index) === false) {
        next.set(params[i]!.floats, this.run.layout.chunks[chunk.index]!.offset);
        for (const done of [params[i], gradients?.[i]]) done?.release();
        continue;
      }
      const region = gradients ? acquireRegion(chunk.arena, chunk.length) : this.leaveOut(chunk, round, params[i]!);
      if (gradients) this.update(chunk, round, params[i]!, region, gradients[i]!, decisionOf?.(chunk.index) ?? decision);
      next.set(region.floats, this.run.layout.chunks[chunk.index]!.offset);
      for (const done of [region, params[i]!, gradients?.[i]]) done?.release();
    }
    return next;
  }

  /** Plan two-phase: what follows from the sums of all chunks. */
  decided(round: number, weights: Float32Array, sum: Float32Array, examples: number, rate: number): RoundDecision | undefined {
    this.rate.factor = rate;
    const [params, gradients] = [this.regionsOf(weights), this.regionsOf(sum)];
    const decision = this.decide(round, params, gradients, examples);
    for (const done of [...params, ...gradients]) done.release();
    return decision;
  }

  release(): void {
    for (const { pointer } of this.slotRegions()) this.arena.free(pointer);
    this.slots.clear();
    giveArena(this.arena);
  }

  private decide(round: number, params: readonly Region[], gradients: readonly Region[], examples: number): RoundDecision | undefined {
    const { spec } = this.run;
    const { optimizer, gradient } = appliedByServers(spec);
    if (roundPlan(spec) === 'streaming') return undefined;
    const scalars = this.chunks.map((chunk, i) => ({ chunk: chunk.index, ...this.measure(chunk, gradients[i]!, params[i]!, round) }));
    const { scale, variables } = isLayerwise(optimizer)
      ? judgeTrust(scalars, examples, optimizer)
      : judgeRound(scalars, examples, gradient);
    return { skip: false, examples, scale, variables: variables.map(([variable, factor]) => [variable, factor]) };
  }

  private slotRegions(): { pointer: number; length: number }[] {
    return this.chunks.flatMap(({ index, length }) => (this.slots.get(index) ?? []).map((pointer) => ({ pointer, length })));
  }

  private regionsOf(values: Float32Array): Region[] {
    return this.chunks.map(({ index, arena, length }) => {
      const region = acquireRegion(arena, length);
      const { offset } = this.run.layout.chunks[index]!;
      region.floats.set(values.subarray(offset, offset + length));
      return region;
    });
  }
}
