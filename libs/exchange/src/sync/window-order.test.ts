/** What a member sends when a window opens: small chunks of a node together, and long ones place by place. Bytes are counted on a connection. */
import { FrameType, HEADER_BYTES, type FrameHeader, type Message } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { memoryPair } from '../transports/memory.js';
import { Member } from './member.js';
import { inWindow } from './window-order.js';

/** The order for nodes that have come to these places. */
function orderOf(next: readonly number[], limit: number, bytes: number): string[] {
  const nodes = next.map((at, node) => ({ node, next: at }));
  const order: string[] = [];
  for (const [node, place] of inWindow(nodes, limit, () => bytes)) {
    expect(place).toBe(node.next);
    node.next = place + 1;
    order.push(`${node.node}:${place}`);
  }
  return order;
}

test('long chunks go place by place, small ones in groups of places, node by node', () => {
  expect(orderOf([0, 0], 3, 1 << 20)).toEqual(['0:0', '1:0', '0:1', '1:1', '0:2', '1:2']);
  expect(orderOf([0, 0], 3, 300)).toEqual(['0:0', '0:1', '0:2', '1:0', '1:1', '1:2']);
  // A group has 64 KiB of all nodes together.
  expect(orderOf([0, 0], 4, 16 << 10)).toEqual(['0:0', '0:1', '1:0', '1:1', '0:2', '0:3', '1:2', '1:3']);
  expect(orderOf([2, 0, 5], 4, 300)).toEqual(['0:2', '0:3', '1:0', '1:1', '1:2', '1:3']);
  expect(orderOf([4, 4], 4, 300)).toEqual([]);
  expect(orderOf([0], 130, 1)).toHaveLength(130);
});

test('chunks of several replicas that a narrow window lets go share frames', async () => {
  const [CODEC, CHUNKS, WINDOW, REPLICAS, BYTES] = [7, 16, 8, 4, 250];
  const [here, there] = memoryPair();
  const got: string[] = [];
  there.setReceiver({
    payloadFor: ({ length }) => new Uint8Array(length),
    data: ({ nodeLo, chunk }: FrameHeader) => void got.push(`${nodeLo}:${chunk}`),
    message: () => undefined,
    closed: () => undefined,
  });
  const replicas = Array.from({ length: REPLICAS }, (_, replica) => replica);
  const memory = [0, 1].map(() => new Uint8Array(4 * CHUNKS));
  const member = new Member({
    id: 'w',
    attempt: 1,
    servers: 1,
    totalRounds: 3,
    chunks: Array.from({ length: CHUNKS }, (_, index) => ({ index, offset: index, length: 1, server: 0 })),
    store: { bytes: (generation) => memory[generation & 1]! },
    compute: { step: () => undefined, evaluate: () => undefined, committed: () => undefined },
    onEnd: () => undefined,
    firstOfSums: () => [0],
  });
  here.setReceiver({
    payloadFor: ({ length }) => new Uint8Array(length),
    data: () => undefined,
    message: (message) => member.message(0, message),
    closed: () => undefined,
  });
  member.attach(0, here);
  const welcome = { id: 'w', server: 0, round: 0, view: 1, term: 1, applied: '', window: WINDOW, base: 0, phase: 'training' };
  member.message(0, { type: 'welcome', ...welcome } as Message);
  for (let chunk = 0; chunk < CHUNKS; chunk++) {
    const header = { type: FrameType.parameters, codec: 0, attempt: 1, term: 1, view: 1, round: 0, chunk, length: 4 };
    member.payloadFor(header as never);
    member.data(header as never);
  }
  member.message(0, { type: 'view', view: 1, term: 1, round: 0, members: [{ id: 'w', seat: 0, incarnation: 0, replicas }] });
  for (const replica of replicas) {
    member.contribution(0, replica, 4, [1, 1]);
    const part = { codec: CODEC, bytes: new Uint8Array(BYTES).fill(replica) };
    member.node({ round: 0, lo: replica, hi: replica + 1, chunk: () => part, release: () => undefined });
  }
  await expect.poll(() => got.length).toBe(REPLICAS * WINDOW);
  // The rest waits for the window, and then goes as one batch.
  const [before, bytesBefore] = [got.length, here.sentBytes];
  member.message(0, { type: 'credit', round: 0, base: WINDOW } as Message);
  await expect.poll(() => got.length).toBe(REPLICAS * CHUNKS);
  expect(got.slice(before, before + 9)).toEqual([...Array.from({ length: 8 }, (_, i) => `0:${WINDOW + i}`), `1:${WINDOW}`]);
  const sent = here.sentBytes - bytesBefore;
  const chunks = REPLICAS * (CHUNKS - WINDOW);
  const alone = chunks * (HEADER_BYTES + BYTES);
  // In memory the first chunk leaves at once, by itself.
  expect(sent).toBe(alone - (chunks - REPLICAS - 1) * HEADER_BYTES + tableBytes(REPLICAS, chunks - 1));
  here.close();
});

/** Count, stride, and two digits of each length. */
const tableBytes = (frames: number, chunks: number): number => 2 * frames + 2 * chunks;
