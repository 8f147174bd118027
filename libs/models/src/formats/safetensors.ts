/** One safetensors file, with the topology as the run has it beside it: every model fits. */
import { safetensorsHeader } from '@paceline/storage';
import type { ExportFile } from '../archive.js';
import { jsonOf } from '../byte-stream.js';
import type { ExportParts } from '../export-parts.js';

export function safetensorsFiles({ topology, variables, weights, metadata }: ExportParts): Iterable<ExportFile> {
  const header = safetensorsHeader(
    variables.map(({ path, shape }) => ({ name: path, shape })),
    metadata,
  );
  const bytes = variables.reduce((sum, { length }) => sum + length * 4, 0);
  async function* body(): AsyncGenerator<Uint8Array, void, void> {
    yield header;
    yield* weights.take(bytes);
  }
  return [
    { path: 'topology.json', body: jsonOf(topology) },
    { path: 'model.safetensors', body: body() },
  ];
}
