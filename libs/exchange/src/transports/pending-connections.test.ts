import { connect as dial, createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { connect } from './connect.js';
import { listen } from './listen.js';
import { PendingConnections, sourceOf } from './pending-connections.js';

const HELLO = {
  ...({ type: 'hello', token: 't', run: '00000000-0000-4000-8000-000000000000', role: 'worker' } as const),
  id: 'w',
  host: 'h',
  seat: 0,
  incarnation: 1,
  fingerprint: '',
  layout: '',
};
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };

describe('connections that have not said hello', () => {
  it('go from the source that has the most, whatever came and went before', () => {
    const step = fc.record({ source: fc.constantFrom('a', 'b', 'c'), goes: fc.boolean(), at: fc.nat() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (steps, chance) => {
        const pending = new PendingConnections<string>(() => chance);
        const present: string[] = [];
        for (const [i, { source, goes, at }] of steps.entries())
          if (goes && present.length > 0) pending.delete(present.splice(at % present.length, 1)[0]!);
          else {
            present.push(`${source}${i}`);
            pending.add(`${source}${i}`, source);
          }
        const countOf = (source: string): number => present.filter((name) => name.startsWith(source)).length;
        const victim = pending.victim();
        expect([...pending].sort()).toEqual([...present].sort());
        if (victim === undefined) expect(present).toEqual([]);
        else expect(countOf(victim[0]!)).toBe(Math.max(...['a', 'b', 'c'].map(countOf)));
      }),
    );
  });

  it('of one source go by chance, so that a slow one is not always the next', () => {
    let at = 0;
    const pending = new PendingConnections<number>(() => (at = (at + 0.37) % 1));
    for (let i = 0; i < 10; i++) pending.add(i, 'a');
    const victims = new Set(Array.from({ length: 40 }, () => pending.victim()));
    expect(victims.size).toBeGreaterThan(5);
  });

  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['::ffff:10.1.2.3', '10.1.2.3'],
    ['2001:DB8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:db8:1:2::6', '2001:db8:1:2'],
    ['2001:db8::6', '2001:db8:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['::1', '0:0:0:0'],
    ['::', '0:0:0:0'],
    [undefined, ''],
  ])('of %s count as those of %s', (address, source) => {
    expect(sourceOf(address)).toBe(source);
  });
});

/** A link from another address, on which every byte waits for `delay`. @returns the port of its near end */
async function slowLink(port: number, localAddress: string, delay: () => Promise<void>): Promise<{ port: number; close: () => void }> {
  const sockets: Socket[] = [];
  const link = createServer((near) => {
    const far = dial({ port, host: '127.0.0.1', localAddress });
    sockets.push(near, far);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('error', () => undefined);
      from.on('data', (bytes) => void delay().then(() => to.write(bytes)));
      from.on('close', () => to.destroy());
    }
  });
  await new Promise<void>((resolve) => link.listen(0, '127.0.0.1', resolve));
  const close = (): void => {
    link.close();
    for (const socket of sockets) socket.destroy();
  };
  return { port: (link.address() as AddressInfo).port, close };
}

/** @returns whether its hello was heard */
async function saysHello(port: number): Promise<boolean> {
  const peer = await connect({ host: '127.0.0.1', port, unixPath: null }, { deadlineMs: 60_000, transport: 'tcp' });
  const isHeard = new Promise<boolean>((resolve) =>
    peer.setReceiver({
      payloadFor: () => new Uint8Array(),
      data: () => undefined,
      message: (message) => resolve(message.type === 'heartbeat'),
      closed: () => resolve(false),
    }),
  );
  peer.sendMessage(HELLO, NUMBERS);
  const heard = await isHeard;
  peer.close();
  return heard;
}

// Other loopback addresses than 127.0.0.1 are there without configuration on Linux alone.
describe.runIf(process.platform === 'linux')('a flood of connections that never say hello', () => {
  async function underFlood(act: (port: number, counters: () => { floods: number; pending: number }) => Promise<void>): Promise<void> {
    const flood = new Set<Socket>();
    let floods = 0;
    let isOver = false;
    const listener = await listen(
      { port: 0 },
      (connection) =>
        connection.setReceiver({
          payloadFor: () => new Uint8Array(),
          data: () => undefined,
          message: () => connection.sendMessage({ type: 'heartbeat', progress: 1 }, NUMBERS),
          closed: () => undefined,
        }),
      { maxPending: 16, helloDeadlineMs: 120_000 },
    );
    const one = (): void => {
      const socket = dial({ port: listener.port!, host: '127.0.0.1' });
      flood.add(socket);
      floods++;
      socket.on('error', () => undefined).resume();
      socket.on('close', () => {
        flood.delete(socket);
        if (!isOver) one(); // as many as before, again and again
      });
    };
    for (let i = 0; i < 64; i++) one();
    try {
      while (listener.pendingCount < 16) await sleep(1);
      await act(listener.port!, () => ({ floods, pending: listener.pendingCount }));
    } finally {
      isOver = true;
      for (const socket of flood) socket.destroy();
      await listener.close();
    }
  }

  it('pushes out nobody from another address, however slow his link is', async () => {
    await underFlood(async (port, counters) => {
      const before = counters().floods;
      // Each way, as long as it takes for more than 16 others to come.
      const link = await slowLink(port, '127.0.0.2', async () => {
        for (const since = counters().floods; counters().floods <= since + 16;) await sleep(1);
      });
      expect(await saysHello(link.port)).toBe(true);
      link.close();
      expect(counters().floods - before).toBeGreaterThan(3 * 16); // of 16 that wait, the oldest would have gone three times
      expect(counters().pending).toBeLessThanOrEqual(16);
    });
  });

  it('lets a peer of its own address in, after some tries', async () => {
    await underFlood(async (port) => {
      for (let tries = 0; !(await saysHello(port)); tries++) expect(tries).toBeLessThan(200);
    });
  });
});
