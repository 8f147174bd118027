/**
 * The thread that speaks to the other processes of a cluster. The main thread and the compute threads block while they wait; this one never does.
 * It receives straight into the arena of a model, adds there, and says in the cells of the compute threads that the sums are here.
 */
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import {
  AllReducePlan,
  ClusterError,
  Group,
  joinGroup,
  MemberLostError,
  memberName,
  processClock,
  replicasOf,
  socketTransport,
  Spread,
  type Failure,
  type Joined,
} from '@paceline/collectives';
import { Arena } from '@paceline/kernels';
import { replicaRows } from '@paceline/learning';
import { FAILED, PROGRESS, REDUCED } from '../threads/cells.js';
import { COUNT, RATE, ROWS, STEP_NUMBER, type BatchBuffers, type ToGroup } from '../threads/protocol.js';
import { ANSWERED, GROUP_ENDED, type FromGroupThread, type GroupInit, type SharedModel, type ToGroupThread } from './protocol.js';

const init = workerData as GroupInit;
const { share, self, members } = init;
const own = new Int32Array(init.cells);
let cells: Int32Array;
let collectors: readonly MessagePort[] = [];
/** Failures of the present step in compute threads of this process. */
const pending: Extract<ToGroup, { kind: 'failed' }>[] = [];
const say = (message: FromGroupThread): void => init.port.postMessage(message);

process.on('exit', () => {
  Atomics.store(own, GROUP_ENDED, 1);
  Atomics.notify(own, ANSWERED);
});

interface Opened {
  readonly shared: SharedModel;
  readonly plan: AllReducePlan;
  /** Sums of this process's nodes. */
  readonly nodes: readonly Float32Array[];
  readonly result: Float32Array;
  /** Parameters, and slots of the optimizer. */
  readonly state: readonly Float32Array[];
  readonly header: Float64Array;
  readonly losses: Float64Array;
  buffers: BatchBuffers | undefined;
}
const models = new Map<number, Opened>();

const joined: Promise<Joined> = joinGroup({
  self,
  names: members.map(memberName),
  group: init.group,
  secret: init.secret,
  transport: socketTransport({ members, self, group: init.group, kind: init.transport }),
  clock: processClock,
  deadlineMs: init.joinDeadlineMs,
});
let present: { readonly group: Group; readonly sockets: Joined } | undefined;
const group: Promise<Group> = joined.then((sockets) => {
  const names = members.map(memberName);
  const made = new Group({ self, names, links: sockets.links, clock: processClock, deadlineMs: init.deadlineMs });
  present = { group: made, sockets };
  return made;
});
group.catch(() => undefined); // whoever asks next is told

function faultOf(error: unknown): FromGroupThread {
  if (error instanceof MemberLostError) return { kind: 'lost', members: error.members, message: error.message };
  if (error instanceof ClusterError) return { kind: 'cluster', message: error.message };
  return { kind: 'fault', message: error instanceof Error ? error.message : String(error) };
}

function opened(shared: SharedModel): Opened {
  const { memory, totalLength, trainableLength } = shared;
  const arena = Arena.attach(memory.arena);
  let free = memory.scratch;
  const plan = new AllReducePlan({
    members: members.length,
    self,
    replicas: share.replicas,
    length: totalLength,
    allocate: (elements) => {
      const at = free;
      free += elements * 4;
      return arena.f32(at, elements);
    },
    // All of them are views of the arena, so their place in it is their pointer.
    add: (into, from) => arena.kernels.add(into.byteOffset, from.byteOffset, into.length),
  });
  return {
    shared,
    plan,
    nodes: share.nodes.map(({ lo }) => arena.f32(memory.gradients[lo - share.from]!, totalLength)),
    result: arena.f32(memory.gradients[0]!, totalLength),
    state: [arena.f32(memory.parameters, totalLength), ...memory.slots.map((pointer) => arena.f32(pointer, trainableLength))],
    header: new Float64Array(memory.header),
    losses: new Float64Array(memory.losses),
    buffers: undefined,
  };
}

async function take(message: Exclude<ToGroupThread, { kind: 'start' | 'leave' }>): Promise<void> {
  const all = await group;
  switch (message.kind) {
    case 'open': {
      await all.run({ what: message.plan, operations: [] });
      models.set(message.model, opened(message));
      break;
    }
    case 'agree':
      await all.run({ what: message.what, operations: [] });
      break;
    case 'take-over': {
      const { state } = models.get(message.model)!;
      const operations = state.map((values) => new Spread(members.length, self, [{ member: 0, values }]));
      await all.run({ what: `the weights of model ${message.model} before step ${message.step}`, operations });
      break;
    }
    case 'buffers':
      models.get(message.model)!.buffers = message.buffers;
      break;
    case 'close':
      models.delete(message.model);
      break;
  }
}

/** The rows of an output that each process has computed. */
function outputsOf({ shared, buffers, header }: Opened): Spread[] {
  return (shared.outputs ?? []).map((floats, i) => {
    const parts = members.map((_, member) => {
      const { from, to } = replicasOf(share.replicas, members.length, member);
      const [first, end] = [replicaRows(header[COUNT]!, share.replicas, from).from, replicaRows(header[COUNT]!, share.replicas, to - 1).to];
      return { member, values: new Float32Array(buffers!.outputs[i]!, first * floats * 4, (end - first) * floats) };
    });
    return new Spread(members.length, self, parts);
  });
}

async function reduce(number: number): Promise<void> {
  const model = models.get(number)!;
  const { plan, nodes, result, header, losses } = model;
  // Threads say what failed before they say that the step's gradients are there, but each on a port of its own.
  for (const port of collectors)
    for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port))
      pending.push(next.message as (typeof pending)[number]);
  const failures = pending.splice(0).map(({ replica = -1, layer, message }): Failure => ({
    replica,
    message: message.slice(0, 2000),
    ...(layer === undefined ? {} : { layer: layer.slice(0, 300) }),
  }));
  const bytes = (from: number, to: number): Uint8Array => new Uint8Array(losses.buffer as ArrayBuffer, from * 8, (to - from) * 8);
  const rows = header[ROWS]! === 0 ? '' : `, rows ${header[ROWS]!.toString(16)}`;
  const all = await group;
  const { values, failures: failed } = await all.run({
    what: `step ${header[STEP_NUMBER]} of model ${number}: ${header[COUNT]} examples, rate ${header[RATE]}${rows}`,
    values: bytes(share.from, share.to).slice(),
    failures,
    operations: [plan.reduce(nodes, result), ...outputsOf(model)],
  });
  for (const [member, theirs] of values.entries()) {
    const { from, to } = replicasOf(share.replicas, members.length, member);
    if (member !== self) bytes(from, to).set(theirs);
  }
  if (failed.length === 0) return;
  for (const { replica, layer, message } of failed)
    if (replica < share.from || replica >= share.to) say({ kind: 'failed', message, replica, layer });
  Atomics.store(cells, FAILED, 1);
}

async function step({ model, steps }: Extract<ToGroup, { kind: 'reduce' }>): Promise<void> {
  // The group has deadlines of its own: while it waits within them, this process makes progress.
  const alive = setInterval(() => Atomics.add(cells, PROGRESS, 1), 200);
  try {
    await reduce(model);
  } catch (error) {
    say(faultOf(error));
    Atomics.store(cells, FAILED, 1);
  } finally {
    clearInterval(alive);
    Atomics.store(cells, REDUCED, steps);
    Atomics.notify(cells, REDUCED);
  }
}

async function leave(reason: string): Promise<void> {
  present?.group.leave(reason);
  await present?.sockets.close();
  process.exit();
}

parentPort!.on('message', (message: ToGroupThread) => {
  if (message.kind === 'leave') return void leave(message.reason);
  if (message.kind === 'start') {
    cells = new Int32Array(message.cells);
    collectors = message.collectors;
    for (const port of message.collectors)
      port.on('message', (said: ToGroup) => {
        if (said.kind === 'reduce') void step(said);
        else pending.push(said);
      });
    return undefined;
  }
  return void take(message)
    .then(
      () => say({ kind: 'ok' }),
      (error: unknown) => say(faultOf(error)),
    )
    .then(() => {
      Atomics.add(own, ANSWERED, 1);
      Atomics.notify(own, ANSWERED);
    });
});
