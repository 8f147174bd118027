/** TLS on loopback: who is let in, what both sides are told when somebody is not, and new certificates while connections stand. */
import { createSecureContext } from 'node:tls';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { FrameType, type FrameHeader, type Message } from '@paceline/protocol';
import type { Connection, FrameReceiver } from '../../connection.js';
import { connect, type ServerAddress } from '../connect.js';
import { listen, type SocketListener } from '../listen.js';
import { TlsIdentity, type TlsRole } from './identity.js';
import { StackFixture } from './stack.fixture.js';

const DAY_MS = 86_400_000;
const HELLO: Message = {
  type: 'hello',
  token: 'token',
  run: '00000000-0000-4000-8000-000000000000',
  role: 'worker',
  id: 'worker-1',
  host: 'here',
  seat: 0,
  incarnation: 1,
  fingerprint: '',
  layout: '',
};
const NUMBERS = { attempt: 1, term: 1, view: 0, round: 0 };

let own: StackFixture;
let foreign: StackFixture;
let past: StackFixture;
beforeAll(async () => {
  [own, foreign, past] = await Promise.all([
    StackFixture.make('own'),
    StackFixture.make('foreign'),
    StackFixture.make('past', Date.now() - 40 * DAY_MS),
  ]);
});

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const quiet: FrameReceiver = {
  payloadFor: ({ length }) => new Uint8Array(length),
  data: () => undefined,
  message: () => undefined,
  closed: () => undefined,
};

class Door {
  readonly admitted: Connection[] = [];
  readonly refusals: string[] = [];
  readonly headers: FrameHeader[] = [];
  listener!: SocketListener;
  private changed: () => void = () => undefined;

  /** Opens one that anybody may enter who has the certificate of one of `peers`. */
  static async open(identity?: TlsIdentity, peers: readonly TlsRole[] = ['worker']): Promise<Door> {
    const door = new Door();
    const onConnection = (connection: Connection): void => {
      connection.setReceiver({ ...quiet, data: (header) => void (door.headers.push(header), door.changed()) });
      door.admitted.push(connection);
      door.changed();
    };
    door.listener = await listen({ port: 0 }, onConnection, {
      tls: identity && { identity, peers },
      onTlsRefused: (_remote, { code }, by) => {
        door.refusals.push(`${by}: ${code}`);
        door.changed();
      },
    });
    cleanups.push(() => door.listener.close());
    return door;
  }

  get address(): ServerAddress {
    return { host: '127.0.0.1', port: this.listener.port!, unixPath: null };
  }

  /** What the accepting side says of the first that was not let in. */
  async refusal(): Promise<string> {
    while (this.refusals.length === 0) await new Promise<void>((resolve) => (this.changed = resolve));
    return this.refusals[0]!;
  }

  /** The flags of the first chunk that comes. */
  async flags(): Promise<number> {
    while (this.headers.length === 0) await new Promise<void>((resolve) => (this.changed = resolve));
    return this.headers[0]!.flags;
  }

  /** Says hello, and waits until it is let in. */
  async enter(connection: Connection): Promise<Connection> {
    const before = this.admitted.length;
    connection.setReceiver(quiet);
    connection.sendMessage(HELLO, NUMBERS);
    while (this.admitted.length === before) await new Promise<void>((resolve) => (this.changed = resolve));
    return this.admitted.at(-1)!;
  }
}

const dial = (address: ServerAddress, identity?: TlsIdentity): Promise<Connection> =>
  connect(address, { deadlineMs: 4_000, tls: identity && { identity, peers: ['server'] } });

/** Says hello, and how the connection ends on the dialling side. */
function endOf(connection: Connection): Promise<string> {
  return new Promise((resolve) => {
    connection.setReceiver({ ...quiet, closed: ({ error, description }) => resolve(error ? error.message : description) });
    connection.sendMessage(HELLO, NUMBERS);
  });
}

/** Takes what the other side shows, and shows something else. */
function showing(other: StackFixture, taking: StackFixture): TlsIdentity {
  const identity = taking.identity('worker');
  const { cert, key } = other.files('worker');
  Object.defineProperty(identity, 'context', { value: createSecureContext({ ...identity.contextOptions, cert, key }) });
  return identity;
}

test('chunks carry a checksum over plain TCP, and none under TLS', async () => {
  const flags: number[] = [];
  for (const isEncrypted of [false, true]) {
    const door = await Door.open(isEncrypted ? own.identity('server') : undefined);
    const connection = await dial(door.address, isEncrypted ? own.identity('worker') : undefined);
    await door.enter(connection);
    const numbers = { ...NUMBERS, type: FrameType.gradient, codec: 0, nodeLo: 0, nodeHi: 1, chunk: 0 } as const;
    connection.sendData(numbers, new Uint8Array(100_000));
    flags.push(await door.flags());
  }
  expect(flags).toEqual([1, 0]);
});

test('a peer without TLS is told so by a server with TLS', async () => {
  const door = await Door.open(own.identity('server'));
  expect(await endOf(await dial(door.address))).toMatch(/^TLS_REQUIRED: .*--tls/);
  expect(await door.refusal()).toBe('this side: TLS_REQUIRED');
});

test('a peer with TLS is told so by a server without, and the server counts it', async () => {
  const door = await Door.open();
  await expect(dial(door.address, own.identity('worker'))).rejects.toMatchObject({ code: 'TLS_UNEXPECTED' });
  while (!door.listener.counters.refused.TLS_UNEXPECTED) await new Promise(setImmediate);
});

test('a server refuses a certificate of a foreign CA, one that has ended and a role that may not be there, and says why', async () => {
  const door = await Door.open(own.identity('server'));
  expect(await endOf(await dial(door.address, showing(foreign, own)))).toMatch(/^TLS_FOREIGN_CA: .*one CA/);
  expect(await endOf(await dial(door.address, own.identity('server')))).toMatch(/^TLS_WRONG_ROLE: .*\/server; here only .*\/worker/);
  const late = await Door.open(past.identity('server'));
  const blind = past.identity('worker');
  expect(door.admitted.length).toBe(0);
  await expect(dial(late.address, blind)).rejects.toMatchObject({ code: 'TLS_CERTIFICATE_EXPIRED' });
});

test('a worker refuses a server of a foreign CA, of an ended certificate or of another role, and the server hears why', async () => {
  const strange = await Door.open(foreign.identity('server'));
  await expect(dial(strange.address, showing(foreign, own))).rejects.toMatchObject({ code: 'TLS_FOREIGN_CA' });
  const impostor = await Door.open(own.identity('worker'));
  await expect(dial(impostor.address, own.identity('worker'))).rejects.toMatchObject({ code: 'TLS_WRONG_ROLE' });
  expect(await impostor.refusal()).toBe('the peer: TLS_WRONG_ROLE');
});

test('a renewed certificate is used by new connections, while those that stand stay', async () => {
  const stack = await StackFixture.make('renewed', Date.now() - 25 * DAY_MS);
  const [server, worker] = [stack.identity('server'), stack.identity('worker')];
  const door = await Door.open(server);
  const before = await dial(door.address, worker);
  const far = await door.enter(before);
  const endedAtMs = server.endsAtMs;
  await stack.renew();
  server.replace(stack.files('server'));
  worker.replace(stack.files('worker'));
  expect(server.endsAtMs).toBeGreaterThan(endedAtMs);
  const after = await dial(door.address, worker);
  await door.enter(after);
  expect([before.isOpen, far.isOpen, after.isOpen]).toEqual([true, true, true]);
});

test('files that do not fit are refused with what to do, and leave the identity as it was', () => {
  const identity = own.identity('worker');
  const { endsAtMs } = identity;
  const [files, server, others] = [own.files('worker'), own.files('server'), foreign.files('worker')];
  expect(() => identity.replace({ ...files, key: server.key })).toThrow(/^TLS_FILE_INVALID: the key is not that/);
  expect(() => identity.replace({ ...files, ca: others.ca })).toThrow(/^TLS_FOREIGN_CA/);
  expect(() => identity.replace({ ...files, cert: files.key })).toThrow(/^TLS_FILE_INVALID: the certificate holds no/);
  expect(() => identity.replace(past.files('worker'))).toThrow(/^TLS_CERTIFICATE_EXPIRED/);
  expect(identity.endsAtMs).toBe(endsAtMs);
});

test('of several hosts that are told, the first that answers is taken', async () => {
  const door = await Door.open();
  const address = { ...door.address, host: '127.0.0.1,127.0.0.2' };
  const closed = { ...address, host: '127.255.255.254,127.0.0.1' };
  const connection = await connect(closed, { deadlineMs: 4_000 });
  expect(connection.remote).toBe(`127.0.0.1:${door.listener.port}`);
  connection.close();
  await expect(connect({ ...address, port: 1 }, { deadlineMs: 4_000 })).rejects.toThrow(/127\.0\.0\.1:1.*127\.0\.0\.2:1/);
});
