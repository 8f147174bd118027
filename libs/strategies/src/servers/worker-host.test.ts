/** A worker whose parameter server does not come. */
import { ClusterSpec, COORDINATOR, processClock, rosterOf, Tasks, type Content } from '@paceline/collectives';
import type { ModelDescription } from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, expect, it, vi } from 'vitest';
import { readCompiled } from '../model/compiled.js';
import { ruleOf } from '../model/optimizer-fields.js';
import { trainedModel, type UserModel } from '../model/tf-model.js';
import { mlp } from '../models.fixture.js';
import { textBytes, type WorkerPlan } from './messages.js';
import { WorkerHost } from './worker-host.js';

const DEADLINE_MS = 600_000;
/** Calls of the transport, which answer when the test says so. */
const dials: (() => void)[] = [];
const roster = rosterOf(new ClusterSpec({ chief: ['a:1'], worker: ['b:1'], ps: ['c:1'] }));
const tasks = new Tasks({
  roster,
  self: 1,
  secret: 'a secret of these tests',
  kind: 'tcp',
  clock: processClock,
  transport: {
    listen: () => Promise.reject(new Error('nobody is listened for')),
    connect: () => new Promise((_, reject) => dials.push(() => reject(new Error('refused')))),
  },
});
const host = new WorkerHost({ tasks, servers: [2], clock: processClock });
const asked = (name: string, body: object, parts: Uint8Array[] = []): Promise<Content> =>
  host.handlerOf(COORDINATOR)(name, { body, parts });
afterAll(() => host.close());

/** A prediction waits for the parameters of the server. */
async function waiting(session: string): Promise<{ readonly predicted: Promise<unknown> }> {
  await asked('begin', { session, threads: 1, deadlineMs: DEADLINE_MS });
  const model: UserModel = mlp() as tfl.LayersModel;
  model.compile({ optimizer: 'sgd', loss: 'categoricalCrossentropy' });
  const { spec, format } = readCompiled(model, trainedModel(model)!, 0);
  const { body } = await asked('describe', {}, [textBytes({ spec, format })]);
  const { description } = body as { description: ModelDescription };
  const share = { replicas: 1, from: 0, to: 1, nodes: [{ lo: 0, hi: 1 }] };
  const plan: WorkerPlan = {
    spec,
    format,
    rule: ruleOf(model.optimizer),
    readsOutputs: false,
    description,
    share,
    codec: { kind: 'none', seed: 0 },
  };
  await asked('open', { model: 0 }, [textBytes(plan)]);
  const predicted = asked('predict', { model: 0, generation: 0, count: 1, step: 1, rowsAtOnce: 1 });
  predicted.catch(() => undefined);
  await vi.waitFor(() => expect(dials.length).toBeGreaterThan(0));
  return { predicted };
}

it('the worker says what it has sent, and takes the next coordinator, while a server is dialled that does not come', async () => {
  const { predicted } = await waiting('first');
  expect(host.traffic()).toEqual({ sentBytes: 0, receivedBytes: 0 });
  host.left(COORDINATOR);
  await expect(predicted).rejects.toThrow('is not waited for any more');
  for (const refuse of dials.splice(0)) refuse();
  const { predicted: next } = await waiting('second');
  await host.close();
  await expect(next).rejects.toThrow('is not waited for any more');
  // The server refuses when nobody waits for it: it is not dialled again.
  vi.useFakeTimers();
  for (const refuse of dials.splice(0)) refuse();
  await vi.advanceTimersByTimeAsync(1_000);
  vi.useRealTimers();
  expect(dials).toEqual([]);
});
