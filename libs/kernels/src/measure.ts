/**
 * A micro-benchmark of the kernels against their references, for bench/. It allocates `elements` × 6 float32 and runs
 * every kernel for about `millisecondsPerKernel`, twice (kernel and reference).
 */
import { Arena } from './arena.js';
import * as references from './references.js';

export interface KernelMeasurement {
  readonly kernel: string;
  readonly elements: number;
  /** Bytes read and written per call, each stream counted once. */
  readonly bytesPerCall: number;
  /** 10⁹ bytes per second, the best of the repetitions. */
  readonly kernelGBps: number;
  readonly referenceGBps: number;
}

export interface MeasureOptions {
  /** Float32 elements per array; 262144 is a full chunk and mostly stays in the cache, 16 million measure the memory. */
  readonly elements?: number;
  readonly millisecondsPerKernel?: number;
}

function bestMs(run: () => void, budgetMs: number): number {
  for (let i = 0; i < 3; i++) run(); // let the compiler tier up
  let best = Infinity;
  const until = performance.now() + budgetMs;
  do {
    const start = performance.now();
    run();
    best = Math.min(best, performance.now() - start);
  } while (performance.now() < until);
  return best;
}

/** Measures every kernel. Bandwidth, so the figures depend on what else the machine does. */
export function measureKernels({ elements = 262_144, millisecondsPerKernel = 100 }: MeasureOptions = {}): KernelMeasurement[] {
  const bytes = elements * 4;
  const arena = Arena.create({ initialBytes: bytes * 6 + 65_536, maximumBytes: bytes * 6 + 1_048_576 });
  const [a, b, c, d, e] = Array.from({ length: 5 }, () => arena.alloc(bytes)) as [number, number, number, number, number];
  const [A, B, C, D, E] = [a, b, c, d, e].map((pointer) => arena.f32(pointer, elements)) as Float32Array[] as [
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  for (let i = 0; i < elements; i++) A[i] = B[i] = C[i] = D[i] = E[i] = (i % 1000) / 1000;
  const k = arena.kernels;
  const sgd = { learningRate: 1e-6, gradScale: 1 };
  const momentum = { ...sgd, momentum: 0.9, nesterov: false };
  const adam = { stepSize: 1e-6, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, gradScale: 1 };
  const rows: [string, number, () => void, () => void][] = [
    ['add', 3, () => k.add(a, b, elements), () => references.add(A, B)],
    ['scaleInto', 2, () => k.scaleInto(a, b, elements, 0.5), () => references.scaleInto(A, B, 0.5)],
    ['fill', 1, () => k.fill(a, elements, 0.25), () => references.fill(A, 0.25)],
    ['copy', 2, () => k.copy(a, b, elements), () => references.copy(A, B)],
    ['allFinite', 1, () => k.allFinite(a, elements), () => references.allFinite(A)],
    ['sumOfSquares', 1, () => k.sumOfSquares(a, elements), () => references.sumOfSquares(A)],
    ['sgd', 3, () => k.sgd(a, b, e, elements, 1e-6, 1), () => references.sgd(A, B, E, sgd)],
    ['momentum', 5, () => k.momentum(a, b, c, e, elements, 1e-6, 0.9, false, 1), () => references.momentum(A, B, C, E, momentum)],
    ['adam', 7, () => k.adam(a, b, c, d, e, elements, 1e-6, 0.9, 0.999, 1e-7, 1), () => references.adam(A, B, C, D, E, adam)],
  ];
  return rows.map(([kernel, streams, run, reference]) => {
    const bytesPerCall = streams * bytes;
    const gbps = (ms: number): number => bytesPerCall / ms / 1e6;
    return {
      kernel,
      elements,
      bytesPerCall,
      kernelGBps: gbps(bestMs(run, millisecondsPerKernel)),
      referenceGBps: gbps(bestMs(reference, millisecondsPerKernel)),
    };
  });
}
