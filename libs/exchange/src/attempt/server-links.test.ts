/** A worker's link to a shard that was taken over: what its former primary says, also before it welcomes anybody, moves nothing. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { FrameHeader, Message, MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { processClock } from '../clock.js';
import type { Connection, FrameReceiver } from '../connection.js';
import { Member } from '../sync/member.js';
import { ServerLinks } from './server-links.js';

const view = (number: number): MessageOf<'view'> => ({ type: 'view', view: number, term: 1, round: 0, members: [] });
const welcome = (term: number): MessageOf<'welcome'> => ({
  type: 'welcome',
  id: 'w',
  server: 0,
  round: 0,
  view: 1,
  term,
  applied: '',
  window: 0,
  base: 0,
  phase: 'GATHERING',
});

/** A member without parameters, and the connections that it opens to the two servers of its shard, newest last. */
async function linked() {
  const opened: { readonly to: string; hears(message: Message, term: number): void; breaks(): void }[] = [];
  const member = new Member({
    id: 'w',
    attempt: 1,
    chunks: [],
    servers: 1,
    totalRounds: 3,
    store: { bytes: () => new Uint8Array(0) },
    compute: { step: () => undefined, evaluate: () => undefined, committed: () => undefined },
    onEnd: () => undefined,
  });
  const links = new ServerLinks({
    servers: [{ index: 0, serverId: 'primary' }],
    standbys: [{ index: 0, serverId: 'standby' }],
    attempt: 1,
    member,
    clock: processClock,
    giveUpMs: 60_000,
    connect: ({ serverId }) => {
      let receiver!: FrameReceiver;
      const connection = {
        isOpen: true,
        queuedBytes: 0,
        receivedBytes: 0,
        close: () => undefined,
        sendMessage: () => undefined,
        setReceiver: (made: FrameReceiver) => (receiver = made),
      } as unknown as Connection;
      opened.push({
        to: serverId,
        hears: (message, term) => receiver.message(message, { attempt: 1, term } as FrameHeader),
        breaks: () => receiver.closed({ error: undefined, description: 'it broke' }),
      });
      return Promise.resolve(connection);
    },
    hello: () => ({}) as MessageOf<'hello'>,
    onGivenUp: (code) => expect.unreachable(code),
  });
  links.open();
  const newest = async (count: number) => {
    for (const untilMs = Date.now() + 5_000; opened.length < count && Date.now() < untilMs;) await nextTurn();
    return opened[count - 1]!;
  };
  return { member, links, newest };
}

test.each([
  ['has been welcomed', [view(4), welcome(2)]],
  ['has heard its coordinator alone', [view(4)]],
])('by the successor of a primary the worker %s: the view of the former one is refused', async (_, said) => {
  const { member, links, newest } = await linked();
  const first = await newest(1);
  first.hears(welcome(1), 1);
  first.breaks();
  const successor = await newest(2);
  expect(successor.to).toBe('standby');
  for (const message of said) successor.hears(message, 2);
  successor.breaks();
  const former = await newest(3);
  expect(former.to).toBe('primary');
  expect(() => former.hears(view(9), 1)).toThrow('STALE_TERM');
  expect(() => former.hears({ type: 'end', outcome: 'finished', message: '' }, 1)).toThrow('STALE_TERM');
  expect(member.view).toBe(4);
  expect(member.table.state).not.toBe('OVER');
  links.close();
});
