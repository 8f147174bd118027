import { createLogger } from '@paceline/runtime';
import { expect, it } from 'vitest';
import { InitialWeights } from './initial-weights.js';

it('the file that a run begins with is closed when its weights are written', async () => {
  let isOpen = false;
  async function* stream(): AsyncGenerator<Uint8Array, void, void> {
    isOpen = true;
    try {
      yield await Promise.resolve(new Uint8Array(8));
    } finally {
      isOpen = false;
    }
  }
  const written: number[] = [];
  const put = async (_key: string, body: AsyncIterable<Uint8Array>): Promise<void> => {
    for await (const piece of body) written.push(piece.length);
  };
  const checkpoints = { use: (act: (store: object) => Promise<void>) => act({ put }) };
  const parts = [{}, checkpoints, {}, {}, createLogger('test')] as unknown as ConstructorParameters<typeof InitialWeights>;
  const variables = [{ path: 'w', shape: [2] }];
  await new InitialWeights(...parts).write('00000000-0000-7000-8000-000000000000', {
    stored: { round: 3, stream },
    variables,
    taken: new Set(['w']),
  });
  expect(written.at(-1)).toBe(8);
  expect(isOpen).toBe(false);
});
