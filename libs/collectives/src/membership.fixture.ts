/** Members inside one process that come together over memory, train, and may be lost. */
import { memoryPair, processClock, type Connection } from '@paceline/exchange';
import { AllReducePlan } from './all-reduce.js';
import { MemberLostError } from './errors.js';
import { joinGroup, type Joined, type Transport } from './join.js';
import { Membership, ViewChangedError } from './membership.js';
import { nodesOf } from './parts.js';
import { groupId } from './proof.js';
import type { Topology } from './routes.js';
import { Spread } from './spread.js';
import type { NextView } from './views.js';
import { delayed, whileItMay } from './silenced.fixture.js';

export const LENGTH = 40;

export interface Setting {
  readonly members: number;
  readonly replicas: number;
  readonly steps: number;
  readonly topology: Topology;
  readonly hosts: readonly string[];
  readonly deadlineMs: number;
  /** A process that comes anew waits for so long; default: deadlineMs. */
  readonly enterDeadlineMs?: number;
}

/** Takes a member away: it says nothing more. */
export class Loss {
  private readonly ends: Connection[] = [];
  private sent = 0;
  isLost = false;

  /**
   * @param at the frame at which it is lost, counted when `count` was called; or what it was about to call, for the first time or a later one; undefined
   * for a member that stays
   */
  constructor(
    private readonly at: number | { readonly what: string; readonly time: number } | undefined,
    readonly how: 'dies' | 'stands still' = 'dies',
  ) {}

  private counts = false;
  count(): void {
    this.counts = true;
  }

  end(connection: Connection): Connection {
    this.ends.push(connection);
    const mayLeave = (said: unknown): boolean => {
      const { at } = this;
      const isOne = typeof at === 'number' || (said as { readonly what?: unknown }).what === at?.what;
      if (this.counts && !this.isLost && at !== undefined && isOne && this.sent++ === (typeof at === 'number' ? at : at.time)) this.lose();
      return !this.isLost;
    };
    return whileItMay(connection, mayLeave);
  }

  lose(): void {
    this.isLost = true;
    if (this.how === 'dies') for (const end of this.ends) end.close();
  }
}

type OnConnection = (connection: Connection) => void;
const pairOf = (a: number, b: number): string => `${Math.min(a, b)}-${Math.max(a, b)}`;

/** A network in memory: the listener of each member, and the pairs between which nothing comes through. */
export class Network {
  private readonly listeners = new Map<number, OnConnection>();
  private readonly cut = new Set<string>();
  private readonly ends: { readonly pair: string; readonly end: Connection }[] = [];

  constructor(
    private readonly losses: readonly Loss[],
    /** How much later comes what is said; undefined: at once. */
    private readonly delayMs?: () => number,
  ) {}

  /** Two members do not reach each other, and their connection ends. */
  sever(...pairs: readonly (readonly [number, number])[]): void {
    for (const [a, b] of pairs) this.cut.add(pairOf(a, b));
    for (const { pair, end } of this.ends) if (this.cut.has(pair)) end.close();
  }

  /** Without pairs all. */
  heal(...pairs: readonly (readonly [number, number])[]): void {
    if (pairs.length === 0) this.cut.clear();
    for (const [a, b] of pairs) this.cut.delete(pairOf(a, b));
  }

  /** The member was lost, and another process is started in its place. */
  replace(member: number, loss: Loss): void {
    (this.losses as Loss[])[member] = loss;
  }

  /** Another process listens where a member did that has died. */
  take(member: number, listener: OnConnection): void {
    this.listeners.set(member, listener);
    this.taken.add(member);
  }
  private readonly taken = new Set<number>();

  transport(self: number): Transport {
    return {
      listen: async (onConnection) => {
        this.listeners.set(self, onConnection);
        return { close: async () => void this.listeners.delete(self) };
      },
      connect: async (member) => {
        const pair = pairOf(self, member);
        if (this.cut.has(pair)) {
          await new Promise((resolve) => setTimeout(resolve, 20));
          throw new Error('nothing comes through');
        }
        const loss = this.losses[member]!;
        const listener = this.listeners.get(member);
        const isTaken = this.taken.has(member);
        if (!listener || (loss.isLost && loss.how === 'dies' && !isTaken))
          throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
        const [one, other] = memoryPair({ lingerMs: 500 }).map((end) => {
          this.ends.push({ pair, end });
          const said = whileItMay(end, () => !this.cut.has(pair));
          return this.delayMs ? delayed(said, this.delayMs) : said;
        }) as [Connection, Connection];
        if (!loss.isLost) listener(loss.end(other));
        else if (isTaken) listener(other);
        return this.losses[self]!.end(one);
      },
    };
  }
}

/** The gradient of a replica: of the parameters, so that a step done twice or left out shows in the bits. */
function gradient(parameters: Float32Array, replica: number, step: number): Float32Array {
  return parameters.map((value, i) => Math.fround(Math.sin(value * 3 + replica * 0.7 + step + i) / 3));
}

/** One member that trains: parameters are updated with sums over all replicas, whoever has them. */
export class Trainee {
  readonly parameters = new Float32Array(LENGTH).fill(0.1);
  readonly views: NextView[] = [];
  steps = 0;
  error: unknown;
  /** In a new view, before the parameters of the source come. */
  beforeState: () => Promise<void> = async () => undefined;
  /** Before each step. */
  pause: () => Promise<void> = async () => undefined;

  constructor(
    readonly self: number,
    private readonly setting: Setting,
    readonly membership: Membership,
    private readonly joined: Joined,
  ) {}

  /** It came anew: what the others did is told as a number of steps. */
  private async comes(): Promise<void> {
    for (;;) {
      await this.membership.told(0);
      try {
        if (await this.layOut(await this.membership.enter(0))) throw new Error('who is new is not behind');
        this.steps = this.membership.operations;
        return;
      } catch (error) {
        if (!this.membership.isNew || !(error instanceof MemberLostError) || error.kind === 'few') throw error;
      }
    }
  }

  async train(): Promise<void> {
    if (this.membership.isNew) await this.comes();
    for (let step = this.steps; step < this.setting.steps; step++) {
      await this.pause();
      await this.once(() => this.step(step));
      this.steps++;
    }
    // It ends as a process does, while others may be in the last step still.
    this.membership.leave('it has ended');
    await this.joined.close();
  }

  /** An operation that is done again by all, or counts as done. */
  private async once(operation: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        return await operation();
      } catch (error) {
        if (!(error instanceof ViewChangedError)) throw error;
        if (await this.layOut(error.view)) return;
      }
    }
  }

  /** @returns whether the operation in hand is done */
  private async layOut(view: NextView): Promise<boolean> {
    const { membership, self, parameters } = this;
    this.views.push(view);
    membership.adopt(view.number);
    const received = parameters.slice();
    const parts = [{ member: view.members.indexOf(view.source), values: received }];
    const what = `the parameters in view ${view.number}`;
    try {
      await this.beforeState();
      await membership.run({ what, operations: [new Spread(view.members.length, view.members.indexOf(self), parts)] }, false);
    } catch (error) {
      if (error instanceof ViewChangedError) return this.layOut(error.view);
      throw error;
    }
    parameters.set(received);
    membership.catchUp(view.completed);
    return view.behind.includes(self);
  }

  private async step(step: number): Promise<void> {
    const { setting, membership, parameters } = this;
    const { members: among } = membership.view;
    const [members, self] = [among.length, among.indexOf(this.self)];
    const { replicas, topology } = setting;
    const hosts = among.map((member) => setting.hosts[member]!);
    const plan = new AllReducePlan({ members, self, replicas, length: LENGTH, pieceLength: 5, topology, hosts });
    const sums = nodesOf(replicas, members, self).map(({ lo, hi }) => summed(parameters, lo, hi, step));
    const result = new Float32Array(LENGTH);
    await membership.run({ what: `step ${step}`, operations: [plan.reduce(sums, result)] });
    for (let i = 0; i < LENGTH; i++) parameters[i] = Math.fround(parameters[i]! - Math.fround(result[i]! * 0.1));
  }
}

/** In the order of the reduction tree, whose nodes of a power of two of replicas are halves of halves. */
function summed(parameters: Float32Array, lo: number, hi: number, step: number): Float32Array {
  if (hi - lo === 1) return gradient(parameters, lo, step);
  const middle = lo + (hi - lo) / 2;
  const [a, b] = [summed(parameters, lo, middle, step), summed(parameters, middle, hi, step)];
  return a.map((value, i) => Math.fround(value + b[i]!));
}

export const SECRET = 'a secret of the tests';

/** What all come to, whoever computes which replicas, where the topology keeps the order of sums. */
export function parametersAfter(steps: number, replicas: number): Float32Array {
  const parameters = new Float32Array(LENGTH).fill(0.1);
  for (let step = 0; step < steps; step++) {
    const sum = summed(parameters, 0, replicas, step);
    for (let i = 0; i < LENGTH; i++) parameters[i] = Math.fround(parameters[i]! - Math.fround(sum[i]! * 0.1));
  }
  return parameters;
}

/** One member begins. @param secret of a stranger */
export async function trainee(setting: Setting, self: number, network: Network, secret = SECRET, joinMs = 20_000): Promise<Trainee> {
  const names = Array.from({ length: setting.members }, (_, i) => `worker ${i}`);
  const { deadlineMs, enterDeadlineMs = deadlineMs } = setting;
  const common = { names, group: groupId(names), secret, clock: processClock, mayReplace: true };
  const joined = await joinGroup({ ...common, self, transport: network.transport(self), deadlineMs: joinMs });
  const told = (): Uint8Array => new Uint8Array(50_001); // in pieces
  const membership = new Membership({
    joined,
    self,
    names,
    clock: processClock,
    deadlineMs,
    enterDeadlineMs,
    onMemberLoss: 'continue',
    told,
  });
  return new Trainee(self, setting, membership, joined);
}

/** All members begin. */
export async function trainees(setting: Setting, losses: readonly Loss[], network = new Network(losses)): Promise<Trainee[]> {
  const made = await Promise.all(Array.from({ length: setting.members }, (_, self) => trainee(setting, self, network)));
  for (const loss of losses) loss.count();
  return made;
}
