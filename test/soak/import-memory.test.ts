/**
 * A CSV file that is larger than any memory, made on the fly by a server of the test, is imported within a bound of memory.
 * `PACELINE_SOAK_CSV_MB` says how large it is; 10,000 when not set.
 */
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const MEGABYTES = Number(process.env['PACELINE_SOAK_CSV_MB'] ?? 10_000);
const PEAK_MAX_MB = 500;
const ROWS_PER_PIECE = 2_000;
const HEADER = 'a,b,c,d,e,f,g,h,city,label\n';

/** So many rows, always the same. */
function piece(): Buffer {
  let state = 1;
  const random = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  const row = (i: number): string => `${Array.from({ length: 8 }, () => (random() * 100).toFixed(4)).join(',')},city${i % 50},${i % 3}\n`;
  return Buffer.from(Array.from({ length: ROWS_PER_PIECE }, (_, i) => row(i)).join(''));
}

test(`${MEGABYTES} MB of CSV are imported in at most ${PEAK_MAX_MB} MB of memory`, { timeout: 4 * 3_600_000 }, async () => {
  const rows = piece();
  const pieces = Math.ceil((MEGABYTES * 1e6) / rows.length);
  function* table(): Generator<Buffer> {
    yield Buffer.from(HEADER);
    for (let i = 0; i < pieces; i++) yield rows;
  }
  const server = createServer((_, response) => pipeline(Readable.from(table()), response, () => undefined));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/table.csv`;
    const { stdout } = await promisify(execFile)(process.execPath, [path.join(import.meta.dirname, 'import-memory.mjs'), address]);
    const seen = JSON.parse(stdout) as { rows: number; peakMB: number };
    console.log(`${MEGABYTES} MB: ${seen.rows} rows, peak ${seen.peakMB} MB`);
    expect(seen.rows).toBe(pieces * ROWS_PER_PIECE);
    expect(seen.peakMB).toBeLessThanOrEqual(PEAK_MAX_MB);
  } finally {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
});
