/** Imports the CSV file of an address into nowhere, and says as JSON how many rows it had and the most memory that the process held. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { importDataset } from '../../libs/ingest/dist/index.js';

const workFolder = await mkdtemp(path.join(tmpdir(), 'paceline-soak-import-'));
try {
  const sink = { has: () => Promise.resolve(false), put: () => Promise.resolve() };
  const options = { sources: [process.argv[2] ?? ''], label: 'label', split: { train: 0.9, test: 0.1 } };
  const { manifest } = await importDataset(options, sink, { workFolder });
  const rows = manifest.splits.train.rows + (manifest.splits.test?.rows ?? 0);
  process.stdout.write(JSON.stringify({ rows, peakMB: Math.round(process.resourceUsage().maxRSS / 1024) }));
} finally {
  await rm(workFolder, { recursive: true, force: true });
}
