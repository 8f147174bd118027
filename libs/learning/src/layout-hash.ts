import { createHash } from 'node:crypto';
import type { Layout } from './layout.js';

/** SHA-256 (hex) of order, names, shapes and sections of all variables: servers and workers compare it before a gradient is sent. */
export function layoutHash(layout: Layout): string {
  const rows = layout.variables.map(({ path, shape, section }) => [path, shape, section]);
  return createHash('sha256').update(JSON.stringify(rows)).digest('hex');
}
