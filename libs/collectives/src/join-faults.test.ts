/** How a group comes together in memory: members that start again meanwhile, who says hello and no more, who is refused. */
import { memoryPair, processClock, type Clock, type Connection } from '@paceline/exchange';
import { beforeEach, expect, it } from 'vitest';
import { joinGroup, type Joined } from './join.js';
import { groupId, newNonce } from './proof.js';

const SECRET = 'a secret of the tests';
const GROUP = groupId('these tests');
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };

let listeners: Map<number, (connection: Connection) => void>;
/** Ends of those that listen. */
let accepted: Connection[];
beforeEach(() => {
  [listeners, accepted] = [new Map(), []];
});

function dial(member: number): Connection {
  const listener = listeners.get(member);
  if (!listener) throw new Error('nobody listens');
  const [own, other] = memoryPair({ lingerMs: 1 });
  accepted.push(other);
  listener(other);
  return own;
}

interface Options {
  readonly members?: number;
  readonly secret?: string;
  readonly group?: string;
  readonly clock?: Clock;
}

function enter(self: number, { members = 2, secret = SECRET, group = GROUP, clock = processClock }: Options = {}) {
  const own: Connection[] = [];
  const cancels: (() => void)[] = [];
  let isDead = false;
  const kept = <T extends Connection>(connection: T): T => (own.push(connection), connection);
  const transport = {
    listen: (on: (connection: Connection) => void) => {
      listeners.set(self, (connection) => on(kept(connection)));
      return Promise.resolve({ close: () => Promise.resolve() });
    },
    connect: async (member: number) => {
      if (isDead) throw new Error('this process has died');
      return Promise.resolve(kept(dial(member)));
    },
  };
  const after: Clock['after'] = (ms, act) => {
    if (isDead) return () => undefined; // it would dial for ever
    const cancel = clock.after(ms, act);
    cancels.push(cancel);
    return cancel;
  };
  const names = Array.from({ length: members }, (_, i) => `worker ${i}`);
  const joined: Promise<Joined> = joinGroup({ self, names, group, secret, transport, clock: { ...clock, after }, deadlineMs: 20_000 });
  joined.catch(() => undefined);
  const die = (): void => {
    isDead = true;
    listeners.delete(self);
    for (const cancel of cancels) cancel();
    for (const connection of own) connection.close();
  };
  return { joined, die };
}

/** Waits until the process that dials was taken for a member: from then on its link receives what comes. */
function admission(connection: Connection): Promise<void> {
  const set = connection.setReceiver.bind(connection);
  return new Promise((resolve) => {
    connection.setReceiver = (receiver) => {
      set(receiver);
      resolve();
    };
  });
}

function wound() {
  const timers = new Set<{ readonly atMs: number; act(): void }>();
  let nowMs = 0;
  const clock: Clock = {
    ...processClock,
    now: () => nowMs,
    after: (ms, act) => {
      const timer = { atMs: nowMs + ms, act };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
  };
  const pass = (ms: number): void => {
    nowMs += ms;
    for (const timer of timers) if (timer.atMs <= nowMs && timers.delete(timer)) timer.act();
  };
  return { clock, pass };
}

function stranger(to: number) {
  const connection = dial(to);
  const said: string[] = [];
  const ended = new Promise<string>((resolve) =>
    connection.setReceiver({
      payloadFor: () => new Uint8Array(0),
      data: () => undefined,
      message: ({ type }) => void said.push(type),
      closed: ({ error, description }) => resolve(error?.message ?? description),
    }),
  );
  const hello = (seat = 1): void => {
    const who = { type: 'hello' as const, token: newNonce(), run: GROUP, role: 'member' as const, id: '1', host: '' };
    connection.sendMessage({ ...who, seat, incarnation: 0, fingerprint: '', layout: '' }, NUMBERS);
  };
  return { hello, said, ended };
}

it.each([0, 1])('member %i may start again while the group is not complete', async (restarted) => {
  const first = [enter(0, { members: 3 }), enter(1, { members: 3 })];
  await expect.poll(() => accepted.length).toBe(1);
  await admission(accepted[0]!);
  first[restarted]!.die();
  const again = [enter(restarted, { members: 3 }), enter(2, { members: 3 })];
  const all = await Promise.all([first[1 - restarted]!.joined, ...again.map(({ joined }) => joined)]);
  for (const { links } of all) expect(links.filter((link) => link?.isOpen).length).toBe(2);
  first[1 - restarted]!.die();
  for (const { die } of again) die();
});

it('who says hello and does not prove itself is let go, and may not say it twice', async () => {
  const { clock, pass } = wound();
  const { die } = enter(0, { clock });
  await expect.poll(() => listeners.has(0)).toBe(true);
  const [silent, twice] = [stranger(0), stranger(0)];
  for (const { hello } of [silent, twice]) hello();
  await expect.poll(() => [silent.said, twice.said]).toEqual([['prove'], ['prove']]);
  twice.hello();
  expect(await twice.ended).toContain('a second hello');
  pass(5_000);
  expect(await silent.ended).toContain('no proof of the shared secret within 5000 ms');
  die();
});

it('nobody gets in once the group is complete, also where the member has gone', async () => {
  const members = [enter(0), enter(1)];
  await Promise.all(members.map(({ joined }) => joined));
  members[1]!.die();
  const late = stranger(0);
  late.hello();
  expect(await late.ended).toMatch(/another (process is )?worker 1/);
  expect(late.said).not.toContain('prove');
  members[0]!.die();
});

it.each([
  ['secret', { secret: 'another secret, as long' }, 'give every process the same secret'],
  ['cluster, number of replicas or seed', { group: groupId('others') }, 'another number of replicas or another seed'],
])('who waits says that it has refused a process of another %s', async (_, other, text) => {
  const { clock, pass } = wound();
  const { joined } = enter(0, { clock });
  await expect.poll(() => listeners.has(0)).toBe(true);
  const refused = enter(1, other);
  await expect(refused.joined).rejects.toThrow(text);
  await expect.poll(() => accepted[0]!.isOpen).toBe(false);
  await new Promise(setImmediate);
  pass(20_000);
  await expect(joined).rejects.toThrow(text);
});
