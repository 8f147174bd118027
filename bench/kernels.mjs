/**
 * bench kernels: the kernels over arenas, in bytes per second beside a plain copy of memory
 *
 * Every kernel goes through `--elements` float32 per array, each time just after a copy of as many: `gigabytesPerSecond` counts every array once for
 * reading and once for writing, `ofCopy` is the median over the repetitions of that beside the copy (2 arrays), all in processor time.
 * `ofCached` is the same beside arrays that stay in the cache, `divisions` and `roots` are those of four elements. A kernel holds its bar with 0.7 of the
 * copy; or when it divides, and is as fast from memory as from the cache: then it waits for the one unit that divides and takes roots. Kernels of codecs have
 * bars of their own: `ofReference`, how many times faster they are than the plain TypeScript of the same, and for those that change every element 0.5 of the
 * copy, for top-k 1 % 1.5 GB/s of gradient. With `--check` it exits with 1 when one does not hold. `--only codecs` measures those alone.
 *
 * With `--peer-python PYTHON` numpy, and PyTorch where Python has it, do what the kernels for additions, scaling, checks, norms, SGD, momentum and Adam do, with
 * one thread, over as many elements, in turn with them in each repetition: `ofNumpy` and `ofTorch` are how many times as fast a kernel is, in processor time. PyTorch
 * takes its fused optimizers, which write the parameters over themselves.
 *
 * `checksums` are the ways to take a checksum of bytes, each in GB summed per second of processor time.
 */
import { parseArgs } from 'node:util';
import { kernelsInTurn, measureChecksums } from '@paceline/kernels';
import { median } from './median.mjs';
import { startNumpy } from './numpy-peer.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    elements: { type: 'string', default: '16777216' },
    repetitions: { type: 'string', default: '9' },
    only: { type: 'string' },
    'peer-python': { type: 'string' },
  },
});
const BAR = 0.7;
/** Share of the speed in the cache: memory adds next to nothing. */
const BAR_CACHED = 0.85;
/** Share of the speed of the copy, for codecs that read or write every element. */
const BAR_CODECS = 0.5;
const DENSE_CODECS = new Set(
  ['Half', 'Bfloat', 'Signs']
    .flatMap((name) => [`to${name}`, `from${name}`, `add${name}`])
    .concat('quantize', 'dequantize', 'addQuantized'),
);
const BAR_TOP_K = 1.5;
const BAR_OF_REFERENCE = 5;

/** @param {import('@paceline/kernels').KernelMeasurement} row */
function barOf({ kernel, ofCopy, ofCached, divisions, gigabytesPerSecond, ofReference }) {
  if (ofReference === undefined) return { bar: BAR, holds: ofCopy >= BAR || (divisions > 0 && ofCached >= BAR_CACHED) };
  const isFaster = ofReference >= BAR_OF_REFERENCE;
  if (DENSE_CODECS.has(kernel)) return { bar: `${BAR_CODECS} of the copy, ${BAR_OF_REFERENCE}x`, holds: isFaster && ofCopy >= BAR_CODECS };
  if (kernel === 'topK') return { bar: `${BAR_TOP_K} GB/s, ${BAR_OF_REFERENCE}x`, holds: isFaster && gigabytesPerSecond >= BAR_TOP_K };
  return { bar: `${BAR_OF_REFERENCE}x`, holds: isFaster };
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(2));
const isOnly = flags.only === 'codecs';
const python = flags['peer-python'];

/** @typedef {import('@paceline/kernels').KernelMeasurement} KernelMeasurement */
/** @typedef {Map<string, { numpy: number[], torch: number[] }>} OfPeers milliseconds of a call, by kernel */

/** @returns {Promise<{ measured: KernelMeasurement[], ofPeers: OfPeers }>} */
async function measureInTurn() {
  const measuring = kernelsInTurn({ elements: Number(flags.elements), repetitions: Number(flags.repetitions), onlyCodecs: isOnly });
  /** @type {OfPeers} */
  const ofPeers = new Map();
  const peer = python === undefined ? undefined : await startNumpy(python, Number(flags.elements));
  try {
    for (;;) {
      const { done, value } = measuring.next();
      if (done) return { measured: value, ofPeers };
      const times = await peer?.measure(value);
      if (!times) continue;
      const { numpy, torch } = ofPeers.get(value) ?? { numpy: [], torch: [] };
      ofPeers.set(value, { numpy: [...numpy, times.numpy], torch: times.torch === undefined ? torch : [...torch, times.torch] });
    }
  } finally {
    peer?.stop();
  }
}

const { measured, ofPeers } = await measureInTurn();

/**
 * How many times as fast as its peers a kernel is.
 * @param {KernelMeasurement} row
 */
function besidePeers({ kernel, bytesPerCall, gigabytesPerSecond }) {
  const { numpy = [], torch = [] } = ofPeers.get(kernel) ?? {};
  const ownMs = bytesPerCall / gigabytesPerSecond / 1e6;
  return {
    ...(numpy.length > 0 ? { ofNumpy: round(median(numpy) / ownMs) } : {}),
    ...(torch.length > 0 ? { ofTorch: round(median(torch) / ownMs) } : {}),
  };
}

const rows = measured.map((row) => ({
  kernel: row.kernel,
  elements: row.elements,
  bytesPerCall: row.bytesPerCall,
  gigabytesPerSecond: round(row.gigabytesPerSecond),
  ofCopy: round(row.ofCopy),
  lowest: round(row.lowest),
  highest: round(row.highest),
  ofCached: round(row.ofCached),
  divisions: row.divisions,
  roots: row.roots,
  ...besidePeers(row),
  ...(row.ofReference === undefined ? {} : { ofReference: round(row.ofReference) }),
  ...barOf(row),
}));
const checksums = isOnly
  ? []
  : measureChecksums({ bytes: Number(flags.elements) * 4, repetitions: Number(flags.repetitions) }).map((row) => ({
      way: row.way,
      fromMemory: round(row.fromMemory),
      ofOneChunk: round(row.ofOneChunk),
    }));
if (flags.json) console.log(JSON.stringify({ bench: 'kernels', rows, checksums }));
else {
  console.table(rows);
  console.table(checksums);
}
process.exit(flags.check && rows.some(({ holds }) => !holds) ? 1 : 0);
