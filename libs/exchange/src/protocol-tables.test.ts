import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { printProtocolTables } from './protocol-tables.js';
import { StateTable } from './attempt/state-table.js';

test('docs/protocol-tables.md is what the machines run on', () => {
  expect(readFileSync(new URL('../../../docs/protocol-tables.md', import.meta.url), 'utf8'), 'run npm run docs').toBe(
    printProtocolTables(),
  );
});

test('a machine refuses a row that its state does not allow, and a move that the row does not name', () => {
  const table = new StateTable(
    'door',
    { open: { from: ['SHUT'], event: 'push', does: 'open', next: ['OPEN'] } } as const,
    'SHUT' as 'SHUT' | 'OPEN',
  );
  expect(() => table.take('open', 'SHUT' as never)).not.toThrow();
  table.take('open', 'OPEN');
  expect(table.taken.get('open')).toBe(2);
  expect(() => table.take('open')).toThrow("door: 'open' is not allowed in state OPEN");
});
