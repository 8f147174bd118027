/** `paceline verify --all`: every strategy and topology, of the library and of the service, replays each recorded training of TensorFlow that it can follow. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createHome, type Home } from '../cli/command-line.js';

interface Row {
  readonly strategy: string;
  readonly as: string;
  readonly ok?: boolean;
  readonly notServed?: string;
  readonly loss?: { readonly relative: number };
  readonly weights?: { readonly relative: number };
}

const golden = (name: string): string => join(import.meta.dirname, '../../libs/testkit/golden', `${name}.json`);
const TOLERANCE = 2e-4;

let home: Home;
beforeAll(() => void (home = createHome()));
afterAll(() => home.dispose());

it.each(['mirrored-mlp-sgd', 'mirrored-mlp-adam', 'mirrored-cnn-momentum'])('%s', { timeout: 1_200_000 }, async (recording) => {
  const { ok, files } = await home.json<{ ok: boolean; files: Row[] }>('verify', '--all', golden(recording));
  const far = files.filter((row) => row.notServed === undefined && !((row.weights?.relative ?? 1) < TOLERANCE));
  expect(far).toEqual([]);
  expect(ok).toBe(true);
  expect(files.filter(({ notServed }) => notServed === undefined).length).toBeGreaterThan(8);
});
