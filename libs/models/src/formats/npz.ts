/** The form of NumPy: a zip of one .npy file for each variable (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0). */
import type { LayoutVariable } from '@paceline/learning';
import { zip, type ExportFile } from '../archive.js';
import { jsonOf } from '../byte-stream.js';
import type { ExportParts } from '../export-parts.js';

export function npzFiles({ topology, variables, weights }: ExportParts): Iterable<ExportFile> {
  async function* arrays(): AsyncGenerator<ExportFile, void, void> {
    for (const variable of variables) {
      async function* body(): AsyncGenerator<Uint8Array, void, void> {
        yield npyHeader(variable);
        yield* weights.take(variable.length * 4);
      }
      // A path with a folder in it: np.load gives it back as the name.
      yield await Promise.resolve({ path: `${variable.path}.npy`, body: body() });
    }
  }
  return [
    { path: 'topology.json', body: jsonOf(topology) },
    { path: 'weights.npz', body: zip(arrays()) },
  ];
}

const MAGIC = Buffer.from('\x93NUMPY\x01\x00', 'latin1');

/** Padded so that the data begins at a multiple of 64. */
function npyHeader({ shape }: Pick<LayoutVariable, 'shape'>): Uint8Array {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': ${tuple}, }`;
  const length = Math.ceil((MAGIC.length + 2 + text.length + 1) / 64) * 64 - MAGIC.length - 2;
  const size = Buffer.alloc(2);
  size.writeUInt16LE(length);
  return Buffer.concat([MAGIC, size, Buffer.from(`${text.padEnd(length - 1)}\n`, 'latin1')]);
}
