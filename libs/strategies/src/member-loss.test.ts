/** Processes that go on when one is killed: those that are left end with the bits and the History of a training that lost nobody. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BUILD, results, started } from './processes.fixture.js';
import { Programs } from './programs.fixture.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

let programs: Programs;
beforeAll(() => {
  programs = new Programs();
});
afterAll(() => programs.dispose());

/** The process `VICTIM` is killed so many milliseconds after the beginning of its batch `STEP`, whatever it is at. */
const TRAIN = (options: string): string => `${BUILD}
import { Worker } from 'node:worker_threads';
const given = { replicas: 4, threads: 1 };
const strategy = process.env.TF_CONFIG ? new MultiWorkerMirroredStrategy({ ...given, onMemberLoss: 'continue', ${options} }) : new MirroredStrategy(given);
const model = strategy.scope(() => build());
const { VICTIM, STEP, AFTER_MS } = process.env;
const warnings = [];
process.on('warning', ({ code, message }) => code === 'PACELINE_MEMBER_LOST' && warnings.push(message));
let batches = 0;
const onBatchBegin = async () => {
  if (strategy.task?.index !== Number(VICTIM) || batches++ !== Number(STEP)) return;
  const kill = \`Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, \${AFTER_MS}); process.kill(process.pid, 'SIGKILL');\`;
  await new Promise((resolve) => new Worker(kill, { eval: true }).once('online', resolve));
};
const { history } = await fit(model, { callbacks: { onBatchBegin } });
const answers = [...model.predict(xs, { batchSize: 31 }).dataSync()];
await new Promise((resolve) => setImmediate(resolve)); // warnings are told then
say({ history, digest: await digest(model), answers, members: strategy.members, warnings });
await strategy.dispose();
`;

interface Loss {
  readonly victim: number;
  readonly step: number;
  readonly afterMs: number;
}

async function losing({ victim, step, afterMs }: Loss, options = ''): Promise<Record<string, unknown>[]> {
  const env = { VICTIM: String(victim), STEP: String(step), AFTER_MS: String(afterMs) };
  const running = await started(programs, TRAIN(options), 3, env);
  const killed = await running[victim]!.ended;
  expect(killed.output, 'it has ended before it was killed').toBe('');
  return results(running.filter((_, member) => member !== victim));
}

describe('3 processes, of which one is killed', () => {
  const alone = async (): Promise<Record<string, unknown>> => (await results([programs.start(TRAIN(''))]))[0]!;
  const LOSSES: readonly Loss[] = IS_SOAK
    ? [0, 1, 2].flatMap((victim) => [1, 2, 3, 4, 5, 6, 7].map((step) => ({ victim, step, afterMs: (step * 7) % 5 })))
    : [{ victim: 0, step: 2, afterMs: 1 }];

  it('the others go on with the bits of a training that lost nobody, and say who was lost', async () => {
    const expected = await alone();
    for (const loss of LOSSES)
      for (const { members, warnings, ...result } of await losing(loss)) {
        const where = JSON.stringify(loss);
        expect({ ...result, members: undefined, warnings: undefined }, where).toEqual({
          ...expected,
          members: undefined,
          warnings: undefined,
        });
        expect(members, where).toMatchObject({ lost: [{ type: 'worker', index: loss.victim, view: 1 }] });
        expect(warnings, where).toEqual([expect.stringMatching(`^worker ${loss.victim} .* was lost: 2 of 3 processes go on`)]);
      }
  }, 3_000_000);
});
