/**
 * What the compute thread of a worker keeps of its replicas, with the classes that apps/worker/src/compute-thread.ts has: the encoder with its residuals,
 * and the local steps with their slots. It ends with its seat, and all of that with it.
 */
import { GradientEncoder, codecOf, type ResidualLoss } from '@paceline/codecs';
import type { GradientNode, ReplicaResidual } from '@paceline/exchange';
import type { LocalUpdates } from '@paceline/learning';
import { isEncoded } from '@paceline/spec';
import { localGradient, localUpdatesOf } from '../run/replica-gradient.js';
import { scratchArena, type TinyRun } from '../run/tiny-run.js';

/** A frame of these bytes is no gradient that anybody has computed. */
const RELEASED = 0xff;

export interface ReplicaWorkOptions {
  readonly run: TinyRun;
  readonly attempt: number;
  /** Where replicas keep something between rounds: is told of each that is encoded. */
  readonly kept:
    | {
        encoded(
          computed: { attempt: number; worker: object; round: number; replica: number; lost: ResidualLoss | undefined },
          gradient: Float32Array,
          sent: readonly Uint8Array[],
          codecs: Uint8Array,
        ): void;
        taken(by: { attempt: number; worker: object; round: number }, residual: ReplicaResidual): void;
      }
    | undefined;
  /** Puts mistakes in. */
  plant(made: LocalUpdates | GradientEncoder): void;
}

interface EncodedLeaf extends Pick<GradientNode, 'chunk' | 'release'> {
  readonly lost: ResidualLoss | undefined;
}

export class ReplicaWork {
  private readonly arena = scratchArena();
  private readonly local: LocalUpdates | undefined;
  private readonly encoder: GradientEncoder | undefined;

  constructor(private readonly options: ReplicaWorkOptions) {
    const { run, plant } = options;
    this.local = localUpdatesOf(run, this.arena);
    this.encoder = this.createEncoder();
    for (const made of [this.local, this.encoder]) if (made) plant(made);
  }

  /** Every replica is a node of its own. */
  get leavesOnly(): boolean {
    const { spec, shape } = this.options.run;
    return shape.gradient.backupReplicas > 0 || isEncoded(spec);
  }

  /** @param weights of the round, loaded at its begin @param live the same place in memory now */
  gradient(round: number, replica: number, weights: Float32Array, live: () => Float32Array): Float32Array {
    const { run } = this.options;
    const spoil = (out: Float32Array): void => run.spoil(round, replica, out);
    if (this.local) {
      const start = weights.slice();
      // Its last word is (start − weights), with the start as it lies in memory then.
      return localGradient(run, this.local, this.arena, { round, replica, start }, spoil, () => void start.set(live()));
    }
    const out = new Float32Array(weights.length);
    run.step(weights, round, replica, out);
    spoil(out);
    return out;
  }

  /** The gradient of one replica as it is sent. */
  encoded(round: number, replica: number, gradient: Float32Array): EncodedLeaf | undefined {
    const { arena, encoder } = this;
    if (!encoder) return undefined;
    const vector = arena.alloc(gradient.byteLength);
    arena.f32(vector, gradient.length).set(gradient);
    const { pointer, codecs, offsets, lengths, lost } = encoder.encode(round, replica, vector);
    const bytes = [...lengths].map((length, i) => arena.bytes(pointer + offsets[i]!, length).slice());
    for (const done of [vector, pointer]) arena.free(done);
    this.options.kept?.encoded({ attempt: this.options.attempt, worker: this, round, replica, lost }, gradient, bytes, codecs);
    return {
      lost,
      chunk: ({ index }) => ({ codec: codecs[index]!, bytes: bytes[index]! }),
      release: () => bytes.forEach((chunk) => chunk.fill(RELEASED)),
    };
  }

  /** What a round has left of these replicas, as far as it is here. */
  residuals(round: number, replicas: readonly number[]): ReplicaResidual[] {
    const { encoder } = this;
    if (!encoder || encoder.residualFloats === 0) return [];
    return replicas.flatMap((replica) => {
      const values = new Float32Array(encoder.residualFloats);
      return encoder.readResidual(round, replica, values) ? [{ replica, values }] : [];
    });
  }

  /** From the checkpoint that the attempt began with, or from another worker. */
  takeResidual(round: number, residual: ReplicaResidual): void {
    this.encoder?.takeResidual(round, residual.replica, residual.values);
    this.options.kept?.taken({ attempt: this.options.attempt, worker: this, round }, residual);
  }

  private createEncoder(): GradientEncoder | undefined {
    const { spec, layout, schedule, shape } = this.options.run;
    const codec = codecOf(spec.codec, layout);
    const chunks = layout.chunks.map((chunk) => ({ ...chunk, isEncoded: chunk.section === 'trainable' }));
    return codec && new GradientEncoder(codec, this.arena, chunks, spec.seed, spec.codec!, shape.replicas, (k) => schedule.round(k).count);
  }
}
