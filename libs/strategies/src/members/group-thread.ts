/**
 * The thread that speaks to the other processes of a cluster. The main thread and the compute threads block while they wait; this one never does.
 * It receives straight into the arena of a model, adds there, and says in the cells of the compute threads that the sums are here.
 */
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import {
  add,
  ClusterError,
  joinGroup,
  MemberLostError,
  memberName,
  Membership,
  probe,
  processClock,
  rangeOf,
  replicasOf,
  socketTransport,
  Spread,
  ViewChangedError,
  type Called,
  type Failure,
  type Joined,
  type Operation,
  type Range,
  type Timing,
} from '@paceline/collectives';
import { replicaRows } from '@paceline/learning';
import { ELSEWHERE, FAILED, GATHERED, PROGRESS, REDUCED } from '../threads/cells.js';
import { COUNT, RATE, ROWS, slotRange, STEP_NUMBER, type ToGroup } from '../threads/protocol.js';
import { PARAMETERS } from '../threads/local-updates.js';
import { ANSWERED, GROUP_ENDED, type FromGroupThread, type GroupInit, type ToGroupThread } from './protocol.js';
import type { ReplicaArray } from '../replicas/per-replica.js';
import { GroupCalls, shared } from './group-calls.js';
import { Entrance } from './entrance.js';
import { outcomeOf, placesIn, placesOf, saidIn, saidOf, type Outcome } from './outcomes.js';
import { opened, type Opened } from './opened-model.js';

const init = workerData as GroupInit;
const continues = init.onMemberLoss === 'continue';
/** Of the members that are left: which of them this one is, and what it computes. */
let { share, self, members, hosts } = init;
const own = new Int32Array(init.cells);
const traffic = new Float64Array(init.traffic);
let cells: Int32Array;
let collectors: readonly MessagePort[] = [];
/** Failures of the present step in compute threads of this process. */
const pending: Extract<ToGroup, { kind: 'failed' }>[] = [];
const say = (message: FromGroupThread): void => init.port.postMessage(message);

process.on('exit', () => {
  Atomics.store(own, GROUP_ENDED, 1);
  Atomics.notify(own, ANSWERED);
});

const models = new Map<number, Opened>();
let functions: GroupCalls | undefined;

/** Also what the transport throws is told to whoever asks next. */
const join = async (): Promise<Joined> =>
  joinGroup({
    self,
    names: members.map(memberName),
    group: init.group,
    secret: init.secret,
    transport: socketTransport({ members, self, group: init.group, kind: init.transport, listenHost: init.listenHost }),
    clock: processClock,
    deadlineMs: init.joinDeadlineMs,
    mayReplace: continues,
  });
let timings: readonly Timing[] = [];
let present: { readonly group: Membership; readonly sockets: Joined } | undefined;
const group: Promise<Membership> = join().then(async (sockets) => {
  const { onMemberLoss, deadlineMs, joinDeadlineMs: enterDeadlineMs } = init;
  const told = (from: number): Uint8Array => entrance.told(from, timings);
  const options = {
    joined: sockets,
    self,
    names: members.map(memberName),
    clock: processClock,
    deadlineMs,
    onMemberLoss,
    told,
    enterDeadlineMs,
    mayEnter: () => entrance.mayEnter,
  };
  const made = new Membership(options);
  present = { group: made, sockets };
  if (made.isNew) timings = (await entrance.ask(made, 0)).timings;
  else if (init.probes) timings = await probe(made.present, self, hosts, share.replicas, processClock);
  return made;
});
group.catch(() => undefined); // whoever asks next is told

function faultOf(error: unknown): FromGroupThread {
  const isLost = error instanceof ViewChangedError || (error instanceof MemberLostError && error.kind !== 'few');
  if (isLost && present?.group.isNew) return { kind: 'not-let-in', why: error.message };
  if (error instanceof ViewChangedError) return { kind: 'view', view: error.view };
  if (error instanceof MemberLostError) return { kind: 'lost', members: error.members, message: error.message };
  if (error instanceof ClusterError) return { kind: 'cluster', message: error.message };
  return { kind: 'fault', message: error instanceof Error ? error.message : String(error) };
}

/** What this process came to in the last operation, for one that was in it still when a member was lost. */
let last: Outcome | undefined;
const entrance = new Entrance();

/** An operation that all processes do in the same order. */
async function counted(all: Membership, what: string, operations: readonly Operation[]): Promise<Called> {
  const called = await all.run({ what, operations });
  last = undefined;
  return called;
}

type Asked = Exclude<ToGroupThread, { kind: 'start' | 'leave' | 'note' | 'close-journal' }>;

async function take(message: Asked): Promise<readonly ReplicaArray[] | undefined> {
  const all = await group;
  switch (message.kind) {
    case 'open': {
      if (message.isAgain) await all.run({ what: `${message.plan} in view ${all.view.number}`, operations: [] }, false);
      else await counted(all, message.plan, []);
      models.set(message.model, opened(message, { members: members.length, self, share, hosts, init }));
      break;
    }
    case 'agree':
      await counted(all, message.what, []);
      break;
    case 'is-new':
    case 'more':
    case 'enter':
    case 'hand-over':
      await letIn(all, message);
      break;
    case 'adopt':
      adopt(all, message);
      break;
    case 'settle':
      await settle(all, message);
      break;
    case 'take-over': {
      const model = models.get(message.model)!;
      const what = `the weights of model ${message.model} before step ${message.step}`;
      const isStaged = model.shared.memory.own !== undefined && (await firstHasStaged(all, what, message.staged));
      const whole = model.shared.memory.own ? [model.parameters] : [model.parameters, ...model.slots];
      const member = message.from ?? 0;
      const operations = whole.map((values) => new Spread(members.length, self, [{ member, values }]));
      if (message.from !== undefined)
        await all.run({ what: `the state of model ${message.model} in view ${all.view.number}`, operations }, false);
      else await counted(all, what, isStaged ? [...operations, ...slotsOfFirst(model, message.staged)] : operations);
      break;
    }
    case 'slots': {
      const what = `reading the optimizer state of model ${message.model} before step ${message.step}, which is in parts (optimizerSharding): every process must read or save it, not one alone`;
      await all.run({ what, operations: gatheredSlots(models.get(message.model)!, message.into) });
      break;
    }
    case 'average': {
      const { plan, nodes, result } = models.get(message.model)!;
      const of = message.vector === PARAMETERS ? 'the parameters' : `slot ${message.vector - 1} of the optimizer`;
      const what = `the average of ${of} of model ${message.model} after step ${message.step}: every process must take as many local steps, and read weights and optimizer state in the same places`;
      await all.run({ what, operations: [plan.reduce(nodes, result)] });
      break;
    }
    case 'fragment': {
      const { plan, nodes, result } = models.get(message.model)!.fragments[message.fragment]!;
      const what = `fragment ${message.fragment} of model ${message.model} after step ${message.step}: every process must take as many local steps, and read weights and optimizer state in the same places`;
      await all.run({ what, operations: [plan.reduce(nodes, result)] });
      break;
    }
    case 'timings':
      say({ kind: 'timings', timings });
      break;
    case 'buffers':
      useBuffers(message);
      break;
    case 'close':
      return void models.delete(message.model);
    case 'functions':
      functions = new GroupCalls({ members: members.length, self, share }, message.memory);
      break;
    case 'share':
      return shared(all, { members: members.length, self, share }, message.what, message.values).finally(() => (last = undefined));
  }
  return undefined;
}

/** What a process asks that was started again, and what the others hand to it. */
async function letIn(all: Membership, message: Extract<Asked, { kind: 'is-new' | 'more' | 'enter' | 'hand-over' }>): Promise<void> {
  if (message.kind === 'is-new') return say({ kind: 'is-new', isNew: all.isNew });
  if (message.kind === 'enter') return say({ kind: 'entered', view: await all.enter(message.known) });
  const { kind } = message;
  const told = kind === 'more' ? await entrance.ask(all, message.known) : await entrance.handOver(all, message.view, init.self);
  if (told) say({ kind: 'told', lines: told.lines, closed: told.closed });
}

/** A process that goes through what others did has no model here yet, and says its buffers again later. */
function useBuffers({ model, buffers }: Extract<ToGroupThread, { kind: 'buffers' }>): void {
  const open = models.get(model);
  if (open) open.buffers = buffers;
}

/** Where each process keeps a part of the slots: whether the first one may have written to whole ones. */
async function firstHasStaged(all: Membership, what: string, staged: readonly SharedArrayBuffer[] | undefined): Promise<boolean> {
  const { values } = await all.run({
    what: `whether there is optimizer state beside ${what}`,
    values: Uint8Array.of(staged ? 1 : 0),
    operations: [],
  });
  return values[0]![0] === 1;
}

const slotsOf = ({ shared }: Opened, member: number): Range =>
  slotRange(rangeOf(shared.totalLength, members.length, member), shared.trainableLength);

/** Each process gets its part of the slots of the first one. */
function slotsOfFirst(model: Opened, staged: readonly SharedArrayBuffer[] | undefined): Operation[] {
  return model.slots.flatMap((own, i) => {
    const whole = self === 0 ? new Float32Array(staged![i]!) : undefined;
    return members.map((_, member) => {
      const { offset, length } = slotsOf(model, member);
      if (member === self && whole) own.set(whole.subarray(offset, offset + length));
      if (member === 0 || (member !== self && !whole)) return new Spread(members.length, self, []);
      return new Spread(members.length, self, [{ member: 0, values: whole?.subarray(offset, offset + length) ?? own }], [member]);
    });
  });
}

/** All parts of the slots of all processes. */
function gatheredSlots(model: Opened, into: readonly SharedArrayBuffer[]): Operation[] {
  return model.slots.map((own, i) => {
    const whole = new Float32Array(into[i]!);
    whole.set(own, slotsOf(model, self).offset);
    const parts = members.map((_, member) => {
      const { offset, length } = slotsOf(model, member);
      return { member, values: whole.subarray(offset, offset + length) };
    });
    return new Spread(members.length, self, parts);
  });
}

/** The rows of an output that each process has computed. */
function outputsOf({ shared, buffers, header }: Opened): Spread[] {
  return shared.outputs.map((floats, i) => {
    const parts = members.map((_, member) => {
      const { from, to } = replicasOf(share.replicas, members.length, member);
      const [first, end] = [replicaRows(header[COUNT]!, share.replicas, from).from, replicaRows(header[COUNT]!, share.replicas, to - 1).to];
      return { member, values: new Float32Array(buffers!.outputs[i]!, first * floats * 4, (end - first) * floats) };
    });
    return new Spread(members.length, self, parts);
  });
}

/** What compute threads of this process failed with in the present step or prediction. */
function failuresHere(): Failure[] {
  // Threads say what failed before they say that the step's gradients are there, but each on a port of its own.
  for (const port of collectors)
    for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port))
      pending.push(next.message as (typeof pending)[number]);
  return pending.splice(0).map(({ replica = -1, layer, message }): Failure => ({
    replica,
    message: message.slice(0, 2000),
    ...(layer === undefined ? {} : { layer: layer.slice(0, 300) }),
  }));
}

/** Says what replicas of other processes failed with. */
function note(failed: readonly Failure[]): void {
  if (failed.length === 0) return;
  for (const { replica, layer, message } of failed)
    if (replica < share.from || replica >= share.to) say({ kind: 'failed', message, replica, layer });
  Atomics.store(cells, FAILED, ELSEWHERE);
}

const rowsOf = ({ header }: Opened): string => (header[ROWS]! === 0 ? '' : `, rows ${header[ROWS]!.toString(16)}`);

/** The rows that each process has predicted go to all. */
async function predicted(number: number): Promise<void> {
  const model = models.get(number)!;
  const { header } = model;
  const failures = failuresHere();
  const all = await group;
  const { failures: failed } = await all.run({
    what: `a prediction of model ${number} after step ${header[STEP_NUMBER]! - 1}: ${header[COUNT]} examples${rowsOf(model)}`,
    failures,
    operations: outputsOf(model),
  });
  keep(model, failed, true);
  note(failed);
}

async function reduce(number: number): Promise<void> {
  const model = models.get(number)!;
  const { plan, lowRank, nodes, result, header, losses } = model;
  const isSharded = model.shared.memory.own !== undefined;
  const failures = failuresHere();
  const bytes = (from: number, to: number): Uint8Array => new Uint8Array(losses.buffer as ArrayBuffer, from * 8, (to - from) * 8);
  const all = await group;
  const step = `step ${header[STEP_NUMBER]} of model ${number}`;
  // A batch without rows has no gradient: what is kept stays for the next one.
  const hasRows = header[COUNT]! > 0;
  const sums = lowRank
    ? hasRows
      ? [lowRank.first(ownSum(nodes), header[COUNT]!)]
      : []
    : [isSharded ? plan.scatter(nodes, result) : plan.reduce(nodes, result)];
  const { values, failures: failed } = await all.run({
    what: `${step}: ${header[COUNT]} examples, rate ${header[RATE]}${rowsOf(model)}`,
    values: bytes(share.from, share.to).slice(),
    failures,
    operations: [...sums, ...(model.shared.readsOutputs ? outputsOf(model) : [])],
  });
  for (const [member, theirs] of values.entries()) {
    const { from, to } = replicasOf(share.replicas, members.length, member);
    if (member !== self) bytes(from, to).set(theirs);
  }
  keep(model, failed, model.shared.readsOutputs);
  note(failed);
  if (!lowRank || !hasRows || failed.length > 0) return;
  await all.run({ what: `the second factors of ${step}`, operations: [lowRank.second(result)] });
  lowRank.finish(result);
}

/** The nodes of this process in the first of them, which lies where the result does. */
function ownSum(nodes: readonly Float32Array[]): Float32Array {
  const [first, ...others] = nodes as [Float32Array, ...Float32Array[]];
  for (const other of others) add(first, other);
  return first;
}

function keep({ shared, header, buffers, losses }: Opened, failures: readonly Failure[], hasOutputs: boolean): void {
  const outputs = hasOutputs && failures.length === 0 ? shared.outputs.map((floats, i) => ({ floats, buffer: buffers!.outputs[i]! })) : [];
  last = continues ? outcomeOf({ failures, losses, outputs, replicas: share.replicas, count: header[COUNT]! }) : undefined;
}

/** This process belongs to another view from now on. */
function adopt(all: Membership, { view, share: ofView }: Extract<ToGroupThread, { kind: 'adopt' }>): void {
  members = view.members.map((member) => init.members[member]!);
  hosts = view.members.map((member) => init.hosts[member]!);
  self = view.members.indexOf(init.self);
  share = ofView;
  all.adopt(view.number);
}

/** Who has completed the operation in hand hands its outcome to those that have not; what they compute with is that of the source already. */
async function settle(all: Membership, { view, inHand }: Extract<ToGroupThread, { kind: 'settle' }>): Promise<void> {
  const [source, isBehind] = [view.source === init.self, view.behind.includes(init.self)];
  const values = saidOf(source ? last : undefined);
  const model = inHand === undefined ? undefined : models.get(inHand);
  const what = `what was in hand before view ${view.number}`;
  const { values: said } = await all.run({ what, values, operations: [] }, false);
  const from = view.members.indexOf(view.source);
  const outcome = saidIn(said[from]!);
  const { replicas } = share;
  const places = source ? placesOf(last, replicas) : isBehind && model ? placesIn(model, outcome, replicas, model.header[COUNT]!) : [];
  const receivers = view.behind.map((member) => view.members.indexOf(member));
  const operations = places.map((vector) => new Spread(members.length, self, [{ member: from, values: vector }], receivers));
  await all.run({ what: `the outcome of ${what}`, operations: receivers.length > 0 ? operations : [] }, false);
  if (isBehind) last = undefined;
  if (isBehind && model && outcome.hasLosses) keep(model, outcome.failures, outcome.hasOutputs);
  all.catchUp(view.completed);
  say({ kind: 'settled', failures: isBehind ? outcome.failures : [] });
}

/** What each process has updated goes to all. */
async function gather(number: number): Promise<void> {
  const { plan, parameters, header } = models.get(number)!;
  const all = await group;
  await all.run({ what: `the parameters of model ${number} after step ${header[STEP_NUMBER]}`, operations: [plan.gather(parameters)] });
}

/** For whoever counts: before it is said that an exchange is over. */
function count(): void {
  if (!present) return;
  const { sentBytes, receivedBytes } = present.group.counters;
  traffic.set([sentBytes, receivedBytes]);
}

/** The group has deadlines of its own: while it waits within them, this process makes progress. */
async function inProgress(work: () => Promise<void>): Promise<void> {
  const alive = setInterval(() => Atomics.add(cells, PROGRESS, 1), 200);
  try {
    await work();
  } catch (error) {
    say(faultOf(error));
    Atomics.store(cells, FAILED, ELSEWHERE);
  } finally {
    clearInterval(alive);
    count();
  }
}

/** What replicas of functions keep is gone with their process. */
function ended(error: unknown): never {
  if (!(error instanceof ViewChangedError)) throw error;
  const gone = init.members.flatMap((_, member) => (error.view.members.includes(member) ? [] : [member]));
  throw new MemberLostError(
    gone,
    `${gone.map((member) => memberName(init.members[member]!)).join(', ')} was lost while functions ran in replicas, and what these keep is lost with it: start all processes again`,
  );
}

async function meet({ at }: Extract<ToGroup, { kind: 'meet' }>): Promise<void> {
  let goesOn = false;
  await inProgress(async () => {
    const met = await functions!.meet(await group, at, failuresHere()).catch(ended);
    for (const { replica, message } of met.failures) say({ kind: 'failed', message, replica });
    goesOn = met.goesOn;
  });
  functions!.decide(goesOn);
}

const exchanges = {
  reduce: { exchange: reduce, cell: REDUCED },
  predicted: { exchange: predicted, cell: REDUCED },
  gather: { exchange: gather, cell: GATHERED },
} as const;

async function step({ kind, model, steps }: Extract<ToGroup, { kind: keyof typeof exchanges }>): Promise<void> {
  const { exchange, cell } = exchanges[kind];
  await inProgress(() => exchange(model));
  Atomics.store(cells, cell, steps);
  Atomics.notify(cells, cell);
}

async function leave(reason: string): Promise<void> {
  present?.group.leave(reason);
  await present?.sockets.close();
  process.exit();
}

parentPort!.on('message', (message: ToGroupThread) => {
  if (message.kind === 'leave') return void leave(message.reason);
  if (message.kind === 'note') return entrance.note(message);
  if (message.kind === 'close-journal') return entrance.close(message.why);
  if (message.kind === 'start') {
    cells = new Int32Array(message.cells);
    collectors = message.collectors;
    for (const port of message.collectors)
      port.on('message', (said: ToGroup) => {
        if (said.kind === 'failed') pending.push(said);
        else if (said.kind === 'meet') void meet(said);
        else void step(said);
      });
    return undefined;
  }
  return void take(message)
    .then(
      (values) => say(values ? { kind: 'ok', shared: values } : { kind: 'ok' }),
      (error: unknown) => say(faultOf(error)),
    )
    .then(() => {
      count();
      Atomics.add(own, ANSWERED, 1);
      Atomics.notify(own, ANSWERED);
    });
});
