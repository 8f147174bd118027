import type { ObservedRun } from '@paceline/control-plane';
import { parseRunSpec, serverPartBytes, type ModelDescription } from '@paceline/spec';
import { expect, it } from 'vitest';
import type { BackgroundDatabase } from '../database/database.js';
import type { Fleet } from '../fleet/fleet.js';
import { ServerRoom } from './server-room.js';

const parsed = parseRunSpec({});
if (!parsed.ok) throw new Error('the spec is wrong');
const { spec } = parsed;
const model = { parameterCount: 1_000_000, stateCount: 0 } as ModelDescription;
const BYTES = serverPartBytes(spec, model);

/** A room with one server, which has memory for one part and a half and holds `held`, and the ids that each look at the runs asks for. */
function roomOf(held: string) {
  const asked: string[][] = [];
  const database = {
    runServer: { findMany: async () => [{ runId: held, attempt: 1, serverId: 'ps', run: { attempt: 1 } }] },
    statement: async (_name: string, _text: string, [ids]: [string[]]) => {
      asked.push(ids);
      return ids.map((id) => ({ id, attempt: 1, shortSpec: spec, parameterCount: String(model.parameterCount), stateCount: '0' }));
    },
  };
  const fleet = { list: async () => [{ id: 'ps', memoryBytes: 1.5 * BYTES }], isAlive: () => true, isCompatible: () => true };
  const room = new ServerRoom(database as unknown as BackgroundDatabase, fleet as unknown as Fleet);
  let now = 1e6;
  const waiting = async (ids: readonly string[]): Promise<string[]> => [
    ...((await room.waits(ids.map(unplaced), (now += 60_000))) ?? new Map()).keys(),
  ];
  return { asked, waiting };
}

const unplaced = (runId: string) =>
  ({ runId, attempt: 1, status: 'QUEUED', shardHosts: 'servers', servers: [{ claim: null, madeAtMs: 0 }] }) as unknown as ObservedRun;
const ids = (count: number, from = 0): string[] => Array.from({ length: count }, (_, i) => `run-${from + i}`);

it('says which runs wait for memory, and reads what each needs once', async () => {
  const { asked, waiting } = roomOf('held');
  expect(await waiting([])).toEqual([]);
  expect(asked).toEqual([]);
  expect(await waiting(['a', 'b'])).toEqual(['a', 'b']);
  expect(await waiting(['b', 'c'])).toEqual(['b', 'c']);
  expect(asked).toEqual([['held', 'a', 'b'], ['c']]);
});

it('reads what they need in pages', async () => {
  const { asked, waiting } = roomOf('held');
  expect(await waiting(ids(250))).toHaveLength(250);
  expect(asked.map((page) => page.length)).toEqual([100, 100, 51]);
  expect(new Set(asked.flat()).size).toBe(251);
});

it('forgets when it has remembered too many, but nothing that the present runs need', async () => {
  const { asked, waiting } = roomOf('held');
  await waiting(ids(9_998));
  asked.length = 0;
  const present = [...ids(2), ...ids(3, 9_998)];
  expect(await waiting(present)).toEqual(present);
  expect(asked.flat().sort()).toEqual(['held', ...present].sort());
});
