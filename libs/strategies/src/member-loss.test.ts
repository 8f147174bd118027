/** Processes that go on when one is killed: those that are left end with the bits and the History of a training that lost nobody. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, createServer, type Server, type Socket } from 'node:net';
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

/** Process 0 has other weights than the rest, and dies before all have them. All are there when it does. */
const FIRST = `${BUILD}
const strategy = new MultiWorkerMirroredStrategy({ replicas: 4, threads: 1, onMemberLoss: 'continue' });
const model = strategy.scope(() => build());
const isFirst = strategy.task.index === 0;
if (isFirst) model.setWeights(model.getWeights().map((weight) => tf.fill(weight.shape, 0.5)));
strategy.reduce('sum', strategy.distributeValuesFromFunction(() => 1));
const dies = async () => {
  if (!isFirst) return;
  await new Promise((resolve) => setTimeout(resolve, 500));
  process.kill(process.pid, 'SIGKILL');
};
await fit(model, { callbacks: { [process.env.WHEN]: dies } }).then(() => say({ code: 'ended' }), told);
await strategy.dispose();
`;

/** Process 0 holds on before batch `STEP`, and says so. It listens beside its address: there is somebody in between. */
const HELD = `${BUILD}
const given = { replicas: 4, threads: 1 };
const isFirst = process.env.TF_CONFIG?.includes('"index":0');
const strategy = process.env.TF_CONFIG
  ? new MultiWorkerMirroredStrategy({ ...given, onMemberLoss: 'continue', transport: 'tcp', ...(isFirst ? { listenHost: '127.0.0.2' } : {}) })
  : new MirroredStrategy(given);
const model = strategy.scope(() => {
  const net = tf.sequential({ layers: [tf.layers.dense({ units: 800, activation: 'relu', inputShape: [8], kernelInitializer: seeded(1) }), tf.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: seeded(2) })] });
  net.compile({ optimizer: tf.train.adam(0.01), loss: 'sparseCategoricalCrossentropy', metrics: ['accuracy'] });
  return net;
});
const seen = [];
const callbacks = {
  onBatchBegin: async () => {
    if (!isFirst || seen.length !== 2) return;
    console.log('before the step');
    await new Promise((resolve) => setTimeout(resolve, 500));
  },
  onBatchEnd: async (_, { loss, acc }) => void seen.push([loss, acc]),
};
const { history } = await fit(model, { callbacks });
say({ history, seen, digest: await digest(model), members: strategy.members ?? null });
await strategy.dispose();
`;

/** Of a step from member 0 to 2: its part of the sums of member 2, which is a third of 9,603 float32, comes through, and a piece of the sums of all. */
const THROUGH_BYTES = 15_000;

/** Between member 0 and the others: of what it sends to member 2 so much comes through, once it holds the rest. */
class Between {
  private readonly sockets: Socket[] = [];
  private server: Server | undefined;
  private hasHeld: () => void = () => undefined;
  private holds = false;

  async listen(port: number): Promise<void> {
    this.server = createServer((from) => {
      const to = connect(port, '127.0.0.2');
      this.sockets.push(from, to);
      let greeting = '';
      let through = 0;
      from.on('data', (bytes) => {
        if (greeting.length < 1000) greeting += bytes.toString('latin1');
        to.write(bytes);
      });
      to.on('data', (bytes) => {
        const room = this.holds && greeting.includes('"seat":2') ? Math.max(0, THROUGH_BYTES - through) : bytes.length;
        if (this.holds) through += bytes.length;
        if (room < bytes.length) this.hasHeld();
        from.write(bytes.subarray(0, room));
      });
      for (const [one, other] of [[from, to], [to, from]] as const) one.on('error', () => other.destroy()).on('close', () => other.destroy()); // prettier-ignore
    });
    await new Promise<void>((resolve) => this.server!.listen(port, '127.0.0.1', resolve));
  }

  /** @returns when something was held back */
  hold(): Promise<void> {
    this.holds = true;
    return new Promise((resolve) => (this.hasHeld = resolve));
  }

  close(): void {
    this.server?.close();
    for (const socket of this.sockets) socket.destroy();
  }
}

interface Loss {
  readonly victim: number;
  readonly step: number;
  readonly afterMs: number;
}

async function losing({ victim, step, afterMs }: Loss, options = '', processes = 3): Promise<Record<string, unknown>[]> {
  const env = { VICTIM: String(victim), STEP: String(step), AFTER_MS: String(afterMs) };
  const running = await started(programs, TRAIN(options), processes, env);
  const killed = await running[victim]!.ended;
  expect(killed.output, 'it has ended before it was killed').toBe('');
  return results(running.filter((_, member) => member !== victim));
}

it.each(IS_SOAK ? ['onTrainBegin', 'onBatchBegin'] : ['onBatchBegin'])(
  'the others end where the first process is killed in %s, before they have its weights',
  async (WHEN) => {
    const running = await started(programs, FIRST, 3, { WHEN });
    await running[0]!.ended;
    for (const { code, message, members } of await results(running.slice(1))) {
      expect(code, String(message)).toBe('STRATEGY_MEMBER');
      expect(message).toContain('had not given the weights of a model to all');
      expect(members).toMatchObject([{ type: 'worker', index: 0 }]);
    }
  },
  60_000,
);

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

  it.runIf(IS_SOAK)(
    'of two processes either goes on alone, and with other topologies and a codec those that are left are equal',
    async () => {
      const { history, digest } = await alone();
      for (const victim of [0, 1])
        for (const result of await losing({ victim, step: 3, afterMs: 2 }, '', 2)) expect(result).toMatchObject({ history, digest });
      for (const options of [
        "communication: 'ring', codec: 'int8'",
        "communication: 'tree'",
        "communication: 'hierarchical', codec: 'fp16'",
      ]) {
        const [one, other] = await losing({ victim: 1, step: 4, afterMs: 1 }, options);
        expect({ ...one, warnings: undefined }, options).toEqual({ ...other, warnings: undefined });
      }
    },
    600_000,
  );

  it('one that has not got the sums of the last step gets the state and the result of the step from one that has', async () => {
    const [expected] = await results([programs.start(HELD)]);
    const between = new Between();
    try {
      const running = await started(programs, HELD, 3, {}, (cluster) => between.listen(Number(cluster[0]!.split(':')[1])));
      await running[0]!.said('before the step');
      await between.hold();
      await new Promise((resolve) => setTimeout(resolve, 1_000)); // member 1 completes the step
      running[0]!.child.kill('SIGKILL');
      between.close();
      for (const { members, ...result } of await results(running.slice(1))) {
        expect({ ...result, members: undefined }).toEqual({ ...expected, members: undefined });
        expect(members).toMatchObject({ lost: [{ type: 'worker', index: 0, view: 1 }] });
      }
    } finally {
      between.close();
    }
  }, 200_000);
});
