/** Standbys under kills at every point of a round, both orders of the arbiter's answers, and primaries that come back. */
import { afterEach, describe, expect, test } from 'vitest';
import { memoryPair } from '@paceline/exchange';
import { FrameType, type FrameHeader } from '@paceline/protocol';
import { STANDBY_CLUSTER_ROWS, StandbyCluster, type StandbyClusterOptions } from './standby-cluster.js';
import { expectedWeights } from './tiny-model.js';

const base: StandbyClusterOptions = { replicas: 4, servers: 2, rounds: 7, examples: 37, workers: 2 };
let cluster: StandbyCluster;
const start = (options: Partial<StandbyClusterOptions> = {}) => (cluster = new StandbyCluster({ ...base, ...options }));
afterEach(() => cluster.stop());

/** The run has finished with the bits of an undisturbed one, and each round was committed once, in order. */
function expectUndisturbed(weights = expectedWeights(base)): void {
  expect(cluster.outcome, cluster.describe()).toMatchObject({ outcome: 'finished' });
  const alive = cluster.workers.filter(({ isDead }) => !isDead);
  for (const worker of alive) expect(worker.weights()).toEqual(weights);
  expect(cluster.servers.flatMap(({ errors }) => errors)).toEqual([]);
  // One may be finished again by another coordinator; none is lost, none goes back.
  const rounds = cluster.committed.map(({ round }) => round);
  expect([...new Set(rounds)].sort((a, b) => a - b)).toEqual([...new Set(rounds)]);
}

/** Strikes once, at the `nth` time that it happens in round 3 or later. */
function strike(id: string, what: string, act: () => void): { readonly fired: boolean } {
  const state = { fired: false };
  cluster.watch = (server, happens, round) => {
    if (state.fired || server.id !== id || happens !== what || round < 3) return;
    state.fired = true;
    act();
  };
  return state;
}

test('with standbys and without a fault nothing changes, and both generations are kept in step', async () => {
  start();
  await cluster.finished();
  expectUndisturbed();
  expect(cluster.asked).toEqual([]);
});

const POINTS = ['forwards', 'forwarded', 'applies', 'tells reduced'];
describe.each(['p0', 'p1'])('%s is killed', (id) => {
  for (const point of id === 'p0' ? [...POINTS, 'commits', 'committed', 'collects'] : POINTS)
    test(`when it ${point}`, async () => {
      start();
      const struck = strike(id, point, () => cluster.server(id).kill());
      await cluster.finished();
      expect(struck.fired).toBe(true);
      expectUndisturbed();
      expect(cluster.asked).toContain(`${id.replace('p', 's')} promote`);
    });

  test('when its standby has applied a chunk, before it says so', async () => {
    start();
    const struck = strike(id.replace('p', 's'), 'standby applies', () => cluster.server(id).kill());
    await cluster.finished();
    expect(struck.fired).toBe(true);
    expectUndisturbed();
  });

  test('in plan two-phase, at each point', async () => {
    const undisturbed = start({ twoPhase: { clip: { clipGlobalNorm: 3 }, spoiledRound: 5 } });
    await cluster.finished();
    const weights = undisturbed.workers[0]!.weights().slice();
    expect(weights).not.toEqual(expectedWeights(base));
    for (const point of [...POINTS, 'tells scalars']) {
      cluster.stop();
      start({ twoPhase: { clip: { clipGlobalNorm: 3 }, spoiledRound: 5 } });
      const struck = strike(id, point, () => cluster.server(id).kill());
      await cluster.finished();
      expect(struck.fired).toBe(true);
      expectUndisturbed(weights);
    }
  });
});

test('both primaries are killed at once', async () => {
  start();
  strike('p0', 'commits', () => ['p0', 'p1'].forEach((id) => cluster.server(id).kill()));
  await cluster.finished();
  expectUndisturbed();
});

test.each(['p0', 'p1'])('%s has to end: it leaves its place to its standby, which asks for it at once', async (id) => {
  start();
  const server = cluster.server(id);
  let isLeft = false;
  const struck = strike(id, 'tells reduced', () => setImmediate(() => (isLeft = server.place.handOver())));
  await cluster.finished();
  expect(struck.fired).toBe(true);
  expect(isLeft).toBe(true);
  expect(server.place.handOver(), 'once').toBe(false);
  expectUndisturbed();
  expect(cluster.asked).toContain(`${id.replace('p', 's')} promote`);
});

test('a standby is killed: the primary has it dropped and goes on; nothing is committed in between', async () => {
  start();
  cluster.answerMs = undefined;
  const struck = strike('s1', 'standby applies', () => cluster.server('s1').kill());
  await cluster.until('the strike', () => struck.fired);
  await cluster.until('the primary to ask', () => cluster.server('p1').place.isAsking);
  const before = cluster.committed.length;
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(cluster.committed.length).toBe(before);
  expect(cluster.server('p1').place.waitingFor()).toMatch(/^the arbiter to drop its standby \(its link closed/);
  cluster.answerMs = 1;
  await cluster.finished();
  expectUndisturbed();
  expect(cluster.asked).toContain('p1 drop');
});

test.each([
  ['s1', 'p1', 'drop the standby (its link closed'],
  ['p1', 's1', 'promote this standby (its link closed'],
])('%s is killed, and the arbiter answers nothing: %s gives its place up and says what it asked', async (killed, left, asked) => {
  start({ askAtMostMs: 200 });
  cluster.answerMs = undefined;
  const struck = strike(killed, killed === 's1' ? 'standby applies' : 'forwards', () => cluster.server(killed).kill());
  await cluster.until('the strike', () => struck.fired);
  const server = cluster.server(left);
  await cluster.until('it to leave', () => server.over !== undefined);
  expect(server.over).toContain(`the arbiter has not answered for 0 s: it was asked to ${asked}`);
  expect([server.place.isAsking, server.place.isPrimary]).toEqual([false, false]);
  expect(server.errors).toEqual([]);
});

for (const winner of ['p1', 's1'])
  test(`the link between both breaks while both live: ${winner} wins, the other stops`, async () => {
    start();
    const loser = winner === 'p1' ? 's1' : 'p1';
    const ask = cluster.ask.bind(cluster);
    cluster.ask = (server, want) => (server.id === winner || cluster.leads[1]!.standby === null) && ask(server, want);
    const struck = strike('p1', 'forwards', () => cluster.server('s1').place.standby?.['connection']?.close());
    await cluster.finished();
    expect(struck.fired).toBe(true);
    expectUndisturbed();
    expect(cluster.server(loser).over).toMatch(winner === 'p1' ? /dropped/ : /taken this shard over/);
  });

for (const id of ['p0', 'p1'])
  test(`${id} is frozen until it is replaced, thaws, and changes nothing`, async () => {
    start({ silentMs: 300, rounds: 12 });
    const struck = strike(id, 'tells reduced', () => cluster.server(id).freeze());
    await cluster.until('the takeover', () => cluster.asked.includes(`${id.replace('p', 's')} promote`));
    expect(struck.fired).toBe(true);
    cluster.watch = () => undefined;
    const term = cluster.leads.find((lead) => lead.index === Number(id[1]))!.term;
    expect(term).toBe(2);
    cluster.server(id).thaw();
    await cluster.finished();
    expectUndisturbed(expectedWeights({ ...base, rounds: 12 }));
    expect(cluster.outcome!.by).toBe(id === 'p0' ? 's0' : 'p0');
    const { machine } = cluster.workers[0]!;
    const numbers = { attempt: 1, term: 1, view: 1, round: machine.round, nodeLo: 0, nodeHi: 0, chunk: 0 };
    const chunk = machine['options'].chunks.find(({ server }) => server === Number(id[1]))!;
    const header = {
      type: FrameType.parameters,
      codec: 0,
      flags: 0,
      payloadCrc: 0,
      ...numbers,
      chunk: chunk.index,
      length: chunk.length * 4,
    };
    expect(() => machine.payloadFor(header)).toThrow('STALE_TERM');
    await cluster.until('the former primary to stop', () => cluster.server(id).over !== undefined);
  });

test('a worker alone has heard the commit: all others are told by the successor', async () => {
  start();
  const struck = strike('p0', 'commits', () => {
    const former = cluster.server('p0');
    (former.coordinator as unknown as { servers: { send(): void } }).servers.send = () => undefined;
    setTimeout(() => former.kill(), 30);
  });
  await cluster.finished();
  expect(struck.fired).toBe(true);
  expectUndisturbed();
  expect(cluster.takenRows()).toContain('coordinator.committedElsewhere');
});

test('a standby refuses older terms, applies nothing twice, and has one primary; a primary has one standby', async () => {
  start();
  let checked = false;
  cluster.watch = (server, what, round) => {
    if (server.id !== 'p1' || what !== 'tells reduced' || round !== 3 || checked) return;
    checked = true;
    const { place, shard } = cluster.server('s1');
    const standby = place.standby!;
    const chunk = shard.chunkIndices()[0]!;
    const length = cluster.layout.chunks[chunk]!.length * 4;
    const numbers = {
      attempt: 1,
      term: shard.term,
      view: 1,
      round: 2,
      nodeLo: 0,
      nodeHi: 4,
      chunk,
      codec: 0,
      flags: 0,
      payloadCrc: 0,
      length,
    };
    const header = { type: FrameType.gradient, ...numbers };
    expect(() => standby.payloadFor({ ...header, term: 0 })).toThrow('STALE_TERM');
    const before = shard.round;
    standby.payloadFor(header);
    standby.data(header);
    expect(shard.round).toBe(before);
    expect(() => server.place.admitStandby('s1', memoryPair()[0])).toThrow('SEAT_TAKEN');
  };
  await cluster.until('the round', () => checked);
  cluster.server('p1').kill();
  await cluster.until('the takeover', () => cluster.server('s1').place.isPrimary);
  const { shard, place } = cluster.server('s1');
  place.standby!.message({ type: 'heartbeat', progress: 0 }, { ...({} as FrameHeader), attempt: 1, term: shard.term });
  await cluster.finished();
  expectUndisturbed();
});

test('plan two-phase: a standby takes no gradient of a round before its DECISION', async () => {
  start({ twoPhase: { clip: { clipGlobalNorm: 3 }, spoiledRound: 5 } });
  let refusal: string | undefined;
  cluster.watch = (server, what, round) => {
    if (server.id !== 'p1' || what !== 'tells scalars' || refusal !== undefined || cluster.server('s1').shard.round !== round) return;
    const { shard } = cluster.server('s1');
    const chunk = shard.chunkIndices()[0]!;
    const header = { ...({} as FrameHeader), type: FrameType.gradient, round, chunk, length: cluster.layout.chunks[chunk]!.length * 4 };
    try {
      refusal = shard.wantsReplica(header) ? 'none' : 'dropped';
    } catch (error) {
      refusal = (error as Error).message;
    }
  };
  await cluster.finished();
  expect(refusal).toMatch(/BAD_ROUND.*the DECISION of round \d has not come/u);
  expect(cluster.outcome, cluster.describe()).toMatchObject({ outcome: 'finished' });
});

test('without a standby the loss of a server ends the attempt, as before', async () => {
  start({ standbys: [0] });
  strike('p1', 'forwards', () => cluster.server('p1').kill());
  await cluster.finished();
  expect(cluster.outcome).toMatchObject({ outcome: 'failed', by: 'p0' });
});

test('the successor of a coordinator goes on with its journal, and writes the ledger that was not stored', async () => {
  start();
  cluster.unstoredRounds = 2;
  strike('p0', 'forwards', () => cluster.server('p0').kill());
  await cluster.finished();
  expectUndisturbed();
  const before = cluster.server('p0').journal!.lastNumber;
  const entries = cluster.server('s0').journal!.batch(1_000);
  expect(entries[0]!.n).toBe(before + 1);
  const ledger = entries.flatMap((entry) => (entry.kind === 'ledger' ? [entry] : []));
  expect(ledger[0]!.fromRound).toBe(1);
  expect(ledger.at(-1)!.toRound).toBe(base.rounds - 1);
  const types = entries.flatMap((entry) => (entry.kind === 'event' ? [entry.type] : []));
  expect(types).toEqual(expect.arrayContaining(['journal.gap', 'standby.promoted', 'run.finished']));
});

test('every row of the tables of standbys has been taken', () => {
  const taken = new Set(StandbyCluster.all.flatMap((one) => one.takenRows()));
  expect(STANDBY_CLUSTER_ROWS.filter((row) => !taken.has(row))).toEqual([]);
});
