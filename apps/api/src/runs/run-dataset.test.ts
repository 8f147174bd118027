import { parseRunSpec } from '@paceline/spec';
import { expect, it, vi } from 'vitest';
import type { DataStore } from '../datasets/data-store.js';
import type { Datasets } from '../datasets/datasets.js';
import type { Fleet } from '../fleet/fleet.js';
import { RunDatasets } from './run-dataset.js';

/** It waits so many times, and not by a clock. */
vi.mock('node:timers/promises', () => ({ setTimeout: () => Promise.resolve() }));

/** What is said of `dataset` when the workers see these stores, one list after the other; the last stays. */
async function said(...seen: (readonly (string | null)[])[]): Promise<string> {
  const workers = () => (seen.length > 1 ? seen.shift()! : seen[0]!).map((dataStore, i) => ({ id: `w${i}`, host: 'h', dataStore }));
  const fleet = { list: async () => workers(), isAlive: () => true, isCompatible: () => true } as unknown as Fleet;
  const datasets = {
    resolve: async () => ({ id: 'v', name: 'flowers', version: 'a' }),
    withManifest: async () => ({ issues: [{ path: 'dataset', message: 'is read' }] }),
  } as unknown as Datasets;
  const store = { identity: async () => 'own' } as unknown as DataStore;
  const parsed = parseRunSpec({ dataset: 'flowers' });
  if (!parsed.ok) throw new Error('the spec is wrong');
  const result = await new RunDatasets(datasets, store, fleet).of('team', parsed.spec);
  return 'issues' in result ? result.issues[0]!.message : 'resolved';
}

it('waits for a worker that has just begun and has not told its data store yet', async () => {
  expect(await said([null], [null], ['own'])).toBe('is read');
  expect(await said([null, 'own'])).toBe('is read');
  expect(await said([])).toBe('is read');
});

it('refuses in the end when no worker sees the data store, and says of one what it has', async () => {
  expect(await said([null])).toMatch(/w0 on h has none, or cannot read it/);
  expect(await said(['other', null])).toMatch(/w1 on h has none, or cannot read it/);
  expect(await said(['other'], ['own'])).toMatch(/w0 on h has another one/);
});
