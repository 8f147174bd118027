/** Groups over sockets of this machine: who may join, how many sockets and bytes there are, and what is said when somebody does not come. */
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { processClock, type Clock, type Connection } from '@paceline/exchange';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AllReducePlan } from './all-reduce.js';
import { ClusterSpec, memberName } from './cluster-spec.js';
import { ClusterError, MemberLostError } from './errors.js';
import { Group } from './group.js';
import { joinGroup, type Joined, type Transport } from './join.js';
import { nodesOf } from './parts.js';
import { groupId, isProof, proofOf } from './proof.js';
import { socketTransport } from './socket-transport.js';

const SECRET = 'a secret of the tests';
let folder: string;
let joined: Joined[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'group-'));
  joined = [];
});
afterEach(async () => {
  for (const { links } of joined) for (const link of links) link?.connection.close();
  await Promise.all(joined.map((each) => each.close()));
  rmSync(folder, { recursive: true, force: true });
});

/** Ports that are free at this moment. */
async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

async function cluster(members: number) {
  const ports = await freePorts(members);
  return new ClusterSpec({ worker: ports.map((port) => `127.0.0.1:${port}`) }).members;
}

async function enter(
  members: ClusterSpec['members'],
  self: number,
  {
    kind = 'tcp',
    secret = SECRET,
    group = groupId(members),
    deadlineMs = 20_000,
    clock = processClock,
    through = (transport: Transport) => transport,
  }: {
    kind?: 'auto' | 'tcp' | 'unix';
    secret?: string;
    group?: string;
    deadlineMs?: number;
    clock?: Clock;
    through?: (transport: Transport) => Transport;
  } = {},
): Promise<Joined> {
  const transport = through(socketTransport({ members, self, group, kind, folder }));
  const made = await joinGroup({ self, names: members.map(memberName), group, secret, transport, clock, deadlineMs });
  joined.push(made);
  return made;
}

const DEADLINE_MS = 700;
/** The clock of the process, but for the deadline: it passes when it is told to, not when the machine was slow. */
function heldDeadline() {
  const held = new Set<() => void>();
  const clock: Clock = {
    ...processClock,
    after: (ms, act) => {
      if (ms !== DEADLINE_MS) return processClock.after(ms, act);
      held.add(act);
      return () => void held.delete(act);
    },
  };
  const pass = (): void => held.forEach((act) => act());
  return { clock, pass };
}

/** Counts the connections whose other side was taken for a member: they get a second receiver. */
function admissions() {
  let count = 0;
  const watched = (connection: Connection): Connection => {
    const set = connection.setReceiver.bind(connection);
    let isGreeting = true;
    connection.setReceiver = (receiver) => {
      set(receiver);
      if (!isGreeting) count++;
      isGreeting = false;
    };
    return connection;
  };
  const through = (transport: Transport): Transport => ({
    listen: (onConnection) => transport.listen((connection) => onConnection(watched(connection))),
    connect: (member) => transport.connect(member).then(watched),
  });
  return { through, count: () => count };
}

const sockets = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith('socket:');
    } catch {
      return false; // closed meanwhile
    }
  }).length;

describe('over sockets', () => {
  it.each([
    [2, 'tcp'],
    [3, 'tcp'],
    [4, 'unix'],
    [3, 'auto'],
  ] as const)('%i members by %s: one connection between each two, and the bytes that an all-reduce needs', async (count, kind) => {
    const members = await cluster(count);
    const before = sockets();
    const all = await Promise.all(members.map((_, self) => enter(members, self, { kind })));
    const listeners = kind === 'auto' ? 2 * count : count;
    // Both ends of each connection are in this process. A connection that was dialled twice may still be closing.
    await expect.poll(() => sockets() - before).toBe(listeners + count * (count - 1));
    const kinds = new Set(all.flatMap(({ links }) => links.flatMap((link) => link?.connection.kind ?? [])));
    expect([...kinds]).toEqual([kind === 'auto' ? 'unix' : kind]);

    const length = 1_000_003;
    const names = members.map(memberName);
    const groups = all.map(({ links }, self) => new Group({ self, names, links, clock: processClock, deadlineMs: 20_000 }));
    const results = groups.map(() => new Float32Array(length));
    await Promise.all(
      groups.map((group, self) => {
        const plan = new AllReducePlan({ members: count, self, replicas: count, length });
        const own = nodesOf(count, count, self).map(() => new Float32Array(length).fill(self + 1));
        return group.run({ what: 'step 1', operations: [plan.reduce(own, results[self]!)] });
      }),
    );
    expect(results.every((result) => result.every((value) => value === (count * (count + 1)) / 2))).toBe(true);
    const bound = (2 * (count - 1) * length * 4) / count;
    for (const { links } of all) {
      const bytes = links.reduce((sum, link) => sum + (link?.connection.receivedBytes ?? 0), 0);
      expect(Math.abs(bytes / bound - 1)).toBeLessThan(0.01); // with headers, calls and the handshake
    }
  });

  it('refuses who has another secret, another cluster, or a place that is taken', async () => {
    const members = await cluster(3);
    const first = enter(members, 0);
    await expect(enter(members, 1, { secret: 'another secret, as long' })).rejects.toThrow(ClusterError);
    await expect(enter(members, 1, { secret: 'another secret, as long' })).rejects.toThrow('give every process the same secret');
    await expect(enter(members, 1, { group: groupId('another') })).rejects.toThrow('refuses this process: it has another cluster');
    const rest = [enter(members, 1), enter(members, 2)];
    await Promise.all([first, ...rest]);
    const { clock, pass } = heldDeadline();
    const dialled: number[] = [];
    const through = (transport: Transport): Transport => ({
      listen: () => Promise.resolve({ close: () => Promise.resolve() }),
      connect: (member) => (dialled.push(member), transport.connect(member)),
    });
    const late = enter(members, 2, { deadlineMs: DEADLINE_MS, clock, through }).catch((error: unknown) => error);
    const timesDialled = (member: number): number => dialled.filter((each) => each === member).length;
    await expect.poll(() => Math.min(timesDialled(0), timesDialled(1))).toBeGreaterThan(1); // both have refused it once
    pass();
    expect(String(await late)).toMatch(/waited 700 ms for worker 0 .*another process is worker 2.*, worker 1/);
  });

  it('says who has not come', async () => {
    const members = await cluster(3);
    const { clock, pass } = heldDeadline();
    const { through, count } = admissions();
    const waiting = [0, 2].map((self) =>
      enter(members, self, { deadlineMs: DEADLINE_MS, clock, through }).catch((error: unknown) => error),
    );
    await expect.poll(count).toBe(2); // each has the other
    pass();
    for (const error of await Promise.all(waiting)) {
      expect(error).toBeInstanceOf(MemberLostError);
      expect((error as MemberLostError).members).toEqual([1]);
      expect((error as Error).message).toContain(`waited 700 ms for ${memberName(members[1]!)}`);
    }
  });
});

describe('where a member has ended, those that come together again do not wait for it', () => {
  const again = ({ again }: Joined) => again({ among: [0, 1], suspects: [], graceMs: 20_000, deadlineMs: 20_000 });

  it.each(['tcp', 'unix'] as const)('with transport %s', async (kind) => {
    const members = await cluster(2);
    const [one, other] = await Promise.all([enter(members, 0, { kind }), enter(members, 1, { kind })]);
    await other.close();
    expect((await again(one)).dead).toEqual([1]);
  });

  const refused = (...codes: readonly string[]): Error =>
    new Error('unreachable', {
      cause: Object.assign(new AggregateError(codes.map((code) => Object.assign(new Error(code), { code }))), { code: codes[0] }),
    });

  it('with several addresses: all of them must refuse', async () => {
    const members = await cluster(2);
    let error = refused('ECONNREFUSED', 'ETIMEDOUT');
    const through = (transport: Transport): Transport => ({
      ...transport,
      connect: () => Promise.reject(error),
    });
    const [one, other] = await Promise.all([enter(members, 0, { through }), enter(members, 1)]);
    await other.close();
    const gathered = again(one);
    expect(await Promise.race([gathered, new Promise((resolve) => setTimeout(resolve, 100, 'waits'))])).toBe('waits');
    error = refused('ECONNREFUSED', 'ECONNREFUSED');
    expect((await gathered).dead).toEqual([1]);
  });
});

it('a proof is worth nothing for another side, another member, or another connection', () => {
  const handshake = { group: groupId(1), from: 1, to: 0, dialNonce: 'a', acceptNonce: 'b' };
  const proof = proofOf(SECRET, 'dials', handshake);
  expect(isProof(proof, proofOf(SECRET, 'dials', { ...handshake }))).toBe(true);
  const others = [{ from: 2 }, { to: 1 }, { dialNonce: 'c' }, { acceptNonce: 'c' }, { group: groupId(2) }];
  for (const other of others) expect(isProof(proof, proofOf(SECRET, 'dials', { ...handshake, ...other }))).toBe(false);
  for (const side of ['accepts', 'goes on'] as const) expect(isProof(proof, proofOf(SECRET, side, handshake))).toBe(false);
  expect(isProof('', proof)).toBe(false);
});
