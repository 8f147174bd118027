/** With `codec: auto`: what workers have measured of the first rounds becomes the codec of the run. */
import { measureCodecs, pickCodec } from '@paceline/codecs';
import type { PlacementJob } from '@paceline/control-plane';
import type { CodecPicker } from '@paceline/exchange';
import { Arena } from '@paceline/kernels';
import type { Layout } from '@paceline/learning';
import { picksCodec } from '@paceline/spec';

const SCRATCH_BYTES = 1 << 20;

/** Undefined where the spec names the codec. @param now in milliseconds and fractions */
export function codecPickerOf({ spec, codec, servers }: PlacementJob, { totalLength }: Layout, now: () => number): CodecPicker | undefined {
  if (!picksCodec(spec)) return undefined;
  return {
    picked: codec,
    pick(paces) {
      const all = (of: (pace: (typeof paces)[number]) => number): number[] => paces.map(of);
      const stepMs = Math.max(...all((pace) => pace.stepMs));
      const waitMs = Math.min(...all((pace) => pace.waitMs));
      const latencyMs = Math.min(...all((pace) => pace.latencyMs));
      const denseBytes = 4 * totalLength;
      const [nodes, replicas] = [Math.max(...all((pace) => pace.nodes)), Math.max(...all((pace) => pace.replicas))];
      const decodedBytes = (spec.replicas * denseBytes) / servers;
      const costs = measureCodecs(Arena.create({ initialBytes: SCRATCH_BYTES, maximumBytes: 2 * SCRATCH_BYTES }), now);
      const picked = pickCodec({ stepMs, waitMs, latencyMs, denseBytes, nodes, replicas, decodedBytes }, costs);
      const { kind, parameters, why, bytesPerSecond, roundMs, expectedMs } = picked;
      return { kind, parameters, why, measured: { stepMs, waitMs, latencyMs, bytesPerSecond, denseBytes, roundMs, expectedMs } };
    },
  };
}
