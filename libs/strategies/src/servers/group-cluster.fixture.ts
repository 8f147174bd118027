/** Workers and parameter servers of one cluster inside this process, over its sockets, with a model that a coordinator trains step by step. */
import {
  ClusterSpec,
  COORDINATOR,
  nodesOf,
  type Handler,
  type Peer,
  processClock,
  type Received,
  replicasOf,
  rosterOf,
  Tasks,
} from '@paceline/collectives';
import { createLayout } from '@paceline/learning';
import { fieldLength } from '@paceline/spec';
import type * as tfl from '@tensorflow/tfjs-layers';
import { readCompiled } from '../model/compiled.js';
import { ruleOf } from '../model/optimizer-fields.js';
import { trainedModel, type UserModel } from '../model/tf-model.js';
import { CLASSES, FEATURES, mlp, values } from '../models.fixture.js';
import { freeCluster } from '../programs.fixture.js';
import { initialSlots } from '../update-rule.js';
import { Coordinator } from './coordinator.js';
import { ParameterHost } from './parameter-host.js';
import type { GradientCodec } from './served-shard.js';
import { WorkerHost } from './worker-host.js';

const SECRET = 'a secret of these tests';
const SERVERS = 2;
const MODEL = 0;
export const ROWS = 24;

/** What a task answers in place of its own handler; it may ask that. */
export type Plant = (from: number, name: string, received: Received, own: Handler) => ReturnType<Handler>;

interface Task {
  readonly peers: Set<Peer>;
  end(): Promise<void>;
}

export class GroupCluster {
  /** By place. */
  readonly plants = new Map<number, Plant>();
  private readonly tasks = new Map<number, Task>();
  private readonly coordinators = new Set<Coordinator>();
  /** Who has asked whom, and who has connected to whom, in places. */
  readonly asked = new Set<string>();
  readonly connected = new Set<string>();

  private constructor(
    private readonly cluster: ClusterSpec,
    readonly workers: readonly number[],
    readonly servers: readonly number[],
  ) {}

  static async start(workers: number): Promise<GroupCluster> {
    const cluster = new ClusterSpec(await freeCluster({ chief: 1, worker: workers, ps: SERVERS }));
    const places = (first: number, count: number): number[] => Array.from({ length: count }, (_, i) => first + i);
    const started = new GroupCluster(cluster, places(1, workers), places(1 + workers, SERVERS));
    for (const place of [...started.workers, ...started.servers]) await started.serve(place);
    return started;
  }

  private tasksOf(self: number): Tasks {
    return new Tasks({ roster: rosterOf(this.cluster), self, secret: SECRET, kind: 'auto', clock: processClock });
  }

  async serve(place: number): Promise<void> {
    const tasks = this.tasksOf(place);
    const worker = this.servers.includes(place) ? undefined : new WorkerHost({ tasks, servers: this.servers, clock: processClock });
    const host = worker ?? new ParameterHost();
    const peers = new Set<Peer>();
    const listener = await tasks.listen((arrival) => {
      const { from } = arrival;
      const own = host.handlerOf(from);
      this.connected.add(`${from} ${place}`);
      const answers: Handler = (name, received) => {
        this.asked.add(`${from} ${place}`);
        return this.plants.get(place)?.(from, name, received, own) ?? own(name, received);
      };
      const peer = tasks.peerOf(arrival, answers, () => host.left(from));
      peers.add(peer);
      worker?.joined(from, peer);
    });
    this.tasks.set(place, {
      peers,
      end: async () => {
        for (const peer of peers) peer.close('the test ends it');
        await listener.close();
        await worker?.close();
      },
    });
  }

  /** A task dies: nobody listens there any more. */
  async kill(place: number): Promise<void> {
    const { end } = this.tasks.get(place)!;
    this.tasks.delete(place);
    await end();
  }

  /** Bytes of vectors to and from the servers. */
  serverBytes(): number {
    return this.servers
      .flatMap((place) => [...this.tasks.get(place)!.peers])
      .reduce((sum, { counters }) => sum + counters.sentBytes + counters.receivedBytes, 0);
  }

  /** A session, with the model open and its parameters written. */
  async train(workersPerGroup: number, { deadlineMs = 30_000, codec = 'none' as GradientCodec['kind'], each = 1 } = {}): Promise<Training> {
    const [count, { workers, servers }] = [this.workers.length, this];
    const replicas = count * each;
    const shares = workers.map((_, worker) => ({
      replicas,
      ...replicasOf(replicas, count, worker),
      nodes: nodesOf(replicas, count, worker),
    }));
    const coordinator = new Coordinator({
      tasks: this.tasksOf(COORDINATOR),
      workers,
      servers,
      shares,
      threads: 1,
      workersPerGroup,
      codec: { kind: codec, seed: 3 },
      deadlineMs,
      joinDeadlineMs: 20_000,
    });
    this.coordinators.add(coordinator);
    await coordinator.begin();
    const training = new Training(coordinator);
    await training.open();
    return training;
  }

  /** Ends the sessions that a test has left, and takes its plants back. */
  reset(): void {
    for (const coordinator of this.coordinators) coordinator.end();
    this.coordinators.clear();
    this.plants.clear();
    this.asked.clear();
  }

  async dispose(): Promise<void> {
    this.reset();
    for (const { end } of this.tasks.values()) await end();
  }
}

/** What `ServerExchange` does with a coordinator, for one model. */
export class Training {
  private generation = 0;
  private steps = 0;
  private length = 0;

  constructor(readonly coordinator: Coordinator) {}

  async open(): Promise<void> {
    const model: UserModel = mlp() as tfl.LayersModel;
    model.compile({ optimizer: 'adam', loss: 'sparseCategoricalCrossentropy' });
    const { spec, format } = readCompiled(model, trainedModel(model)!, 0);
    const description = await this.coordinator.describe(spec, format);
    const { totalLength, trainableLength } = createLayout(description);
    const rule = ruleOf(model.optimizer);
    const floats = {
      inputs: format.inputs.map(fieldLength),
      targets: format.targets.map(fieldLength),
      outputs: description.outputs.map(fieldLength),
    };
    const plan = { spec, format, rule, readsOutputs: false };
    await this.coordinator.open({ model: MODEL, plan, description, totalLength, trainableLength, floats });
    this.length = totalLength;
    const parameters = values(totalLength, 7).map((value) => value / 4);
    const slots = initialSlots(rule).map((value) => new Float32Array(trainableLength).fill(value));
    await this.coordinator.write(MODEL, { steps: 0, parameters, slots });
  }

  /** @param of a row whose target is no class, an input in place of the first one, and the learning rate */
  async step({ bad, input, rate = 0.01 }: { readonly bad?: number; readonly input?: number; readonly rate?: number } = {}): Promise<{
    readonly losses: readonly number[];
    readonly failures: readonly { readonly replica?: number | undefined }[];
  }> {
    const shared = (floats: ArrayLike<number>): SharedArrayBuffer => {
      const buffer = new SharedArrayBuffer(floats.length * 4);
      new Float32Array(buffer).set(floats);
      return buffer;
    };
    const targets = Float32Array.from({ length: ROWS }, (_, i) => (i + this.steps) % CLASSES);
    if (bad !== undefined) targets[bad] = 7;
    const given = values(ROWS * FEATURES, this.steps + 1);
    if (input !== undefined) given[0] = input;
    const buffers = {
      inputs: [shared(given)],
      targets: [shared(targets)],
      weights: shared(new Float32Array(ROWS).fill(1)),
      outputs: [shared(new Float32Array(ROWS * CLASSES))],
    };
    const numbers = { model: MODEL, generation: this.generation, count: ROWS, step: this.steps + 1 };
    const { losses, failures } = await this.coordinator.step(numbers, rate, buffers);
    if (failures.length === 0) {
      this.generation++;
      this.steps++;
    }
    return { losses: [...losses], failures };
  }

  /** The outputs for some rows. */
  async predict(): Promise<number[]> {
    const outputs = new SharedArrayBuffer(ROWS * CLASSES * 4);
    const inputs = new SharedArrayBuffer(ROWS * FEATURES * 4);
    new Float32Array(inputs).set(values(ROWS * FEATURES, 99));
    const buffers = { inputs: [inputs], targets: [], weights: new SharedArrayBuffer(4), outputs: [outputs] };
    await this.coordinator.predict({ model: MODEL, generation: this.generation, count: ROWS, step: this.steps + 1 }, 8, buffers);
    return [...new Float32Array(outputs)];
  }

  async values(): Promise<Float32Array> {
    const into = new Float32Array(this.length);
    await this.coordinator.read(MODEL, into);
    return into;
  }

  async parameters(): Promise<string> {
    return Buffer.from((await this.values()).buffer).toString('hex');
  }

  get bytes(): number {
    return this.length * 4;
  }

  end(): void {
    this.coordinator.end();
  }
}
