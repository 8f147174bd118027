/** Sums of gradients between processes, with a codec. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BUILD, results, started } from './processes.fixture.js';
import { Programs } from './programs.fixture.js';

/** `npm run soak` has all of them. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

const source = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ replicas: 4, threads: 2, codec: process.env.CODEC, communication: process.env.WAY, optimizerSharding: process.env.SHARDING });
const model = strategy.scope(() => build());
const { history } = await fit(model, { epochs: 6 });
const { communication } = strategy;
const state = model.layers[1].getWeights().slice(2).flatMap((weight) => [...weight.dataSync()]);
say({ history, digest: await digest(model), state, codec: communication.codec, sent: communication.sentBytes, ...communication.models[0] });
await strategy.dispose();
`;
const trained = async (codec: string, way = 'direct', sharding = 'replicated') =>
  results(await started(programs, source, 2, { CODEC: codec, WAY: way, SHARDING: sharding }));
/** Without a codec, once for all rows that are compared with it. */
const dense = new Map<string, ReturnType<typeof trained>>();
function denseOf(way: string, sharding: string): ReturnType<typeof trained> {
  const key = `${way} ${sharding}`;
  const made = dense.get(key) ?? trained('none', way, sharding);
  dense.set(key, made);
  return made;
}
const lossesOf = ({ history }: Record<string, unknown>): number[] => (history as { loss: number[] }).loss;

it.each(
  IS_SOAK
    ? ([
        ['fp16', 'direct', 'replicated', 440],
        ['bf16', 'ring', 'replicated', 440],
        ['int8', 'tree', 'replicated', 640],
        ['int8', 'direct', 'replicated', 640],
        ['int8', 'direct', 'sharded', 270],
        ['power-sgd', 'direct', 'replicated', 520],
        ['power-sgd', 'tree', 'replicated', 520],
      ] as const)
    : ([
        ['int8', 'direct', 'replicated', 640],
        ['power-sgd', 'direct', 'replicated', 520],
      ] as const),
)(
  '%s, %s, %s: both processes have the same bits, in the soak in every run, and train as without it, with fewer bytes',
  async (codec, way, sharding, saved) => {
    const [[plain], [one, other]] = await Promise.all([denseOf(way, sharding), trained(codec, way, sharding)]);
    const ends = ({ history, digest, state }: Record<string, unknown> = {}) => ({ history, digest, state });
    expect(ends(other)).toEqual(ends(one));
    if (IS_SOAK) expect(ends((await trained(codec, way, sharding))[0])).toEqual(ends(one));
    expect(one).toMatchObject({ codec, keepsOrder: false });
    expect(plain).toMatchObject({ codec: 'none', keepsOrder: true });
    const STEPS = 6 * 4;
    expect(Number(plain!['sent']) - Number(one!['sent'])).toBeGreaterThan(STEPS * saved);
    const [with_, without] = [lossesOf(one!), lossesOf(plain!)];
    expect(with_.at(-1)!).toBeLessThan(with_[0]! * 0.97);
    expect(Math.abs(with_.at(-1)! / without.at(-1)! - 1)).toBeLessThan(0.05);
    expect(one!['digest']).not.toBe(plain!['digest']);
  },
  120_000,
);
