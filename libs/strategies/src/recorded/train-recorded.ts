/** A recorded training, with a model of tf.js that a strategy distributes: one `trainOnBatch` per recorded step. */
import '@tensorflow/tfjs-backend-cpu';
import * as tfc from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { type ClusterAddresses, GivenResolver } from '@paceline/collectives';
import { LocalUpdateStrategy } from '../local-update.js';
import { namedWeights } from '../model/tf-model.js';
import { ModelParallelStrategy } from '../model-parallel.js';
import { MultiWorkerMirroredStrategy } from '../multi-worker.js';
import { HybridStrategy, ParameterServerStrategy } from '../parameter-server.js';
import { Server } from '../servers/server.js';
import type { Strategy } from '../strategy.js';
import { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from '../thread-strategies.js';
import type { RecordedMember, RecordedProgram, RecordedResult, RecordedTask } from './protocol.js';
import { epsilonOfStep, optimizerOf } from './recorded-optimizer.js';
import { HYBRID_REPLICAS, RECORDED_STAGES } from './unserved.js';

export async function trainRecorded({ program, strategy: asked, deadlineMs }: RecordedTask): Promise<RecordedResult> {
  await tfc.setBackend('cpu');
  const model = await tfl.models.modelFromJSON({ modelTopology: program.topology } as never);
  const byPath = new Map(namedWeights(model.layers).map(({ path, weight }) => [path, weight]));
  const weights = program.weights.map(({ path, shape, initial }) => {
    const weight = byPath.get(path);
    if (!weight) throw new Error(`tf.js has no weight ${path}: it has ${[...byPath.keys()].join(', ')}`);
    weight.write(tfc.tensor(initial, [...shape]));
    return weight;
  });
  const optimizer = optimizerOf(program.optimizer);
  const loss = lossOf(program);
  model.compile({ optimizer, loss });
  const strategy = strategyOf(asked, program.replicas, deadlineMs);
  try {
    strategy.distribute(model);
    const losses: number[] = [];
    for (let step = 1; step <= program.steps; step++) {
      const epsilon = epsilonOfStep(program.optimizer, step);
      if (epsilon !== undefined) {
        (optimizer as unknown as { epsilon: number }).epsilon = epsilon;
        model.compile({ optimizer, loss }); // what an optimizer is set to is read when a model is compiled
      }
      const [x, y] = batchOf(program, model, step - 1);
      losses.push((await model.trainOnBatch(x, y)) as number);
      tfc.dispose([x, y]);
    }
    return { losses, weights: weights.map((weight) => Float32Array.from(weight.read().dataSync())) };
  } finally {
    await strategy.dispose();
  }
}

function strategyOf(
  { kind, communication, workersPerGroup, engine, member }: RecordedTask['strategy'],
  replicas: number,
  deadlineMs: number,
): Strategy {
  switch (kind) {
    case 'one-device':
      return new OneDeviceStrategy({ deadlineMs });
    case 'mirrored':
      return new MirroredStrategy({ replicas, deadlineMs, engine: engine ?? 'wasm' });
    case 'central-storage':
      return new CentralStorageStrategy({ replicas, deadlineMs });
    case 'model-parallel':
      return new ModelParallelStrategy({ stages: RECORDED_STAGES, microBatches: replicas, deadlineMs });
    case 'local-update':
      return new LocalUpdateStrategy({ replicas, deadlineMs, localSteps: 1 });
    case 'multi-worker-mirrored': {
      const { hosts, secret } = given(member);
      const where = {
        cluster: resolverOf(given(member)),
        secret,
        hosts,
        communication: communication ?? 'direct',
        joinDeadlineMs: deadlineMs,
      };
      return new MultiWorkerMirroredStrategy({ ...where, replicas, threads: 1, deadlineMs });
    }
    case 'parameter-server':
    case 'hybrid': {
      const { secret } = given(member);
      const options = { secret, deadlineMs, joinDeadlineMs: deadlineMs };
      const resolver = resolverOf(given(member));
      if (kind === 'parameter-server') return new ParameterServerStrategy(resolver, options);
      const groups = workersPerGroup === undefined ? { replicasPerWorker: HYBRID_REPLICAS } : { replicasPerWorker: 1, workersPerGroup };
      return new HybridStrategy(resolver, { ...options, ...groups });
    }
  }
}

/** A worker or a parameter server: it serves the process that trains until it is ended. */
export async function serveRecorded(member: RecordedMember): Promise<never> {
  const server = await Server.start(resolverOf(member), { secret: member.secret });
  await server.join();
  throw new Error('the server was closed');
}

const resolverOf = ({ cluster, task }: RecordedMember): GivenResolver => new GivenResolver(cluster as ClusterAddresses, task);

function given(member: RecordedMember | undefined): RecordedMember {
  if (member) return member;
  throw new Error('a strategy over several processes needs a member');
}

/** Crossentropies of logits are functions of tf.js; their classes are one-hot. */
function lossOf({ loss: { name, fromLogits } }: RecordedProgram): tfl.ModelCompileArgs['loss'] {
  if (!fromLogits) return name;
  if (name === 'sparseCategoricalCrossentropy' || name === 'categoricalCrossentropy') return tfc.losses.softmaxCrossEntropy as never;
  if (name === 'binaryCrossentropy') return tfc.losses.sigmoidCrossEntropy as never;
  return name;
}

/** The last batch of the rows may have fewer. */
function batchOf({ rows, globalBatch, classes, loss }: RecordedProgram, model: tfl.LayersModel, step: number): [tfc.Tensor, tfc.Tensor] {
  const from = (step % Math.ceil(rows.count / globalBatch)) * globalBatch;
  const to = Math.min(rows.count, from + globalBatch);
  const part = (values: Float32Array): Float32Array =>
    values.subarray((values.length / rows.count) * from, (values.length / rows.count) * to);
  const [input, output] = [model.inputs[0]!, model.outputs[0]!].map(({ shape }) => shape.slice(1) as number[]) as [number[], number[]];
  const x = tfc.tensor(part(rows.inputs), [to - from, ...input]);
  const targets = part(rows.targets);
  if (classes === undefined) return [x, tfc.tensor(targets, [to - from, ...output])];
  const isSparse = loss.name === 'sparseCategoricalCrossentropy' && !loss.fromLogits;
  if (isSparse || output.at(-1) === 1) return [x, tfc.tensor(targets, [to - from, 1])];
  return [x, tfc.tidy(() => tfc.cast(tfc.oneHot(tfc.tensor1d(Int32Array.from(targets), 'int32'), output.at(-1)!), 'float32'))];
}
