/** Runs with a standby per shard, through scripted servers: both are placed, one of two that ask wins, and what the loser says is refused. */
import { leadSchema, type LeadAnswer } from '@paceline/control-plane';
import { describe, expect, it } from 'vitest';
import { Coordinator, onAFreshPlane, type ScriptedFleet } from './scripted-fleet.js';
import { createRun, until, type ControlPlane } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
onAFreshPlane((given) => ({ plane, fleet } = given));

const RUN = `query($id: ID!) { run(id: $id) {
  status statusReason attempt progress { round } servers { index role term serverId }
  ledger { committedRounds committedExamples expectedExamples } events(first: 100) { edges { node { type message } } }
} }`;
const runOf = async (id: string) => (await plane.admin.gql(RUN, { id })).data.run;
const leadOf = async (id: string, index: number): Promise<LeadAnswer | undefined> => {
  const text = await fleet.control(id, `lead${index}`);
  return text === null ? undefined : leadSchema.parse(JSON.parse(text));
};
const leadChanges = async (id: string): Promise<string[]> =>
  (await runOf(id)).events.edges.flatMap(({ node }: { node: { type: string; message: string } }) =>
    node.type === 'lead.changed' ? [node.message] : [],
  );

interface Scripted {
  readonly id: string;
  readonly coordinator: Coordinator;
  /** By place: `p0` is the primary of shard 0, `s0` its standby. */
  readonly beats: Record<string, { stop: () => void }>;
}

/** A run of two shards whose four places are served by `p0`, `s0`, `p1` and `s1`, with 30 rounds stored. */
async function running(): Promise<Scripted> {
  const names = ['p0', 's0', 'p1', 's1'];
  const beats = Object.fromEntries(names.map((name) => [name, fleet.beat('server', name)]));
  fleet.beat('worker', 'w');
  const id = await createRun(plane.admin, { strategy: { kind: 'parameter-server', mode: 'sync', servers: 2, standby: 1 } });
  for (const _ of names) {
    const held = await fleet.takePlacement();
    const { index, role = 'primary', attempt } = held.payload;
    const address = { index, serverId: `${role[0]}${index}`, host: '127.0.0.1', port: fleet.port, unixPath: null };
    await fleet.report({ kind: 'server.claimed', runId: id, attempt, role, address });
    await held.complete('claimed');
  }
  const start = await until('the start', async () => {
    const text = await fleet.control(id, 'start');
    return text !== null && (JSON.parse(text) as Record<string, { serverId: string }[]>);
  });
  expect(start['servers']!.map(({ serverId }) => serverId)).toEqual(['p0', 'p1']);
  expect(start['standbys']!.map(({ serverId }) => serverId)).toEqual(['s0', 's1']);
  const coordinator = new Coordinator(fleet, id, 1);
  const { payload } = await fleet.takeStepTask();
  expect(payload.servers.map(({ serverId }) => serverId)).toEqual(['p0', 'p1']);
  expect(payload.standbys!.map(({ serverId }) => serverId)).toEqual(['s0', 's1']);
  await coordinator.train('w', payload);
  await coordinator.publish(coordinator.rounds(0, 29), { round: 30 });
  await coordinator.acknowledged();
  return { id, coordinator, beats };
}

const ask = (id: string, index: number, serverId: string, want: 'drop' | 'promote') =>
  fleet.report({ kind: 'lead.asked', runId: id, attempt: 1, index, serverId, want, term: 1 });

it('waits for as many processes as it has places, and says so', async () => {
  for (const name of ['a', 'b', 'c']) fleet.beat('server', name);
  const id = await createRun(plane.admin, { strategy: { kind: 'parameter-server', mode: 'sync', servers: 2, standby: 1 } });
  await until('the reason', async () => (await runOf(id)).statusReason.includes('needs 4 server processes, 3 are free'));
  expect(await fleet.placements.take()).toBeUndefined();
});

describe('of two that ask', () => {
  it('the standby wins that asks first; later seats know its address alone, and the primary hears that it has lost', async () => {
    const { id, coordinator } = await running();
    const from = performance.now();
    await ask(id, 1, 's1', 'promote');
    const lead = await until('the answer', () => leadOf(id, 1));
    console.log(`from the report to the answer: ${Math.round(performance.now() - from)} ms`);
    expect(lead).toEqual({ attempt: 1, index: 1, term: 2, primary: 's1', standby: null });
    await ask(id, 1, 'p1', 'drop');
    await ask(id, 1, 's1', 'promote');
    await ask(id, 0, 'p0', 'drop');
    await until('the other shard', () => leadOf(id, 0));
    expect(await leadOf(id, 1)).toEqual(lead);
    expect(await leadChanges(id)).toEqual([
      expect.stringContaining('standby s1 leads parameter server 1 from now on, in place of p1 (term 2)'),
      expect.stringContaining('parameter server 0 (p0) goes on without its standby s0'),
    ]);
    expect((await runOf(id)).servers).toEqual([
      { index: 0, role: 'PRIMARY', term: 1, serverId: 'p0' },
      { index: 1, role: 'PRIMARY', term: 2, serverId: 's1' },
    ]);
    await coordinator.publish([], { seats: [] });
    const { payload } = await until('a seat that was made later', async () => {
      const held = await fleet.takeStepTask();
      await held.complete('taken');
      return held.payload.standbys === undefined && held;
    });
    expect(payload.servers.map(({ serverId }) => serverId)).toEqual(['p0', 's1']);
    coordinator.fallSilent();
  });

  it('the primary wins that asks first, and the standby that asks then is told so', async () => {
    const { id, coordinator } = await running();
    await ask(id, 1, 'p1', 'drop');
    await until('the answer', () => leadOf(id, 1));
    await ask(id, 1, 's1', 'promote');
    await ask(id, 0, 's0', 'promote');
    expect(await until('the other shard', () => leadOf(id, 0))).toMatchObject({ primary: 's0', term: 2 });
    expect(await leadOf(id, 1)).toEqual({ attempt: 1, index: 1, term: 1, primary: 'p1', standby: null });
    coordinator.fallSilent();
  });
});

it('a flushed Redis hears the answer again, as it was', async () => {
  const { id, coordinator } = await running();
  await ask(id, 0, 's0', 'promote');
  const lead = await until('the answer', () => leadOf(id, 0));
  expect(lead).toMatchObject({ term: 2, primary: 's0', storedSequence: coordinator.sequence, ledgerFrom: 30, newest: 0 });
  coordinator.fallSilent();
  await fleet.redis.flushall();
  expect(await until('the answer again', () => leadOf(id, 0))).toEqual(lead);
});

it('what a coordinator says that was replaced is refused, and its successor goes on where the stored journal ends', async () => {
  const { id, coordinator: former } = await running();
  const storedSequence = former.sequence;
  // Rounds 30 and 31 are lost on their way; 32 and 33 are stored beyond the gap.
  former.number(former.rounds(30, 31));
  await former.publish(former.rounds(32, 33), { round: 34 });
  await until('the rounds beyond the gap', async () => (await runOf(id)).ledger.committedRounds === 32);
  await ask(id, 0, 's0', 'promote');
  expect(await until('the answer', () => leadOf(id, 0))).toMatchObject({ term: 2, storedSequence, ledgerFrom: 30 });
  expect((await runOf(id)).ledger).toMatchObject({ committedRounds: 30 });
  former.fallSilent();
  await former.publish([{ kind: 'event', type: 'run.failed', message: 'a voice from before', data: { cause: 'POISON_ROUND' } }]);
  await former.publish(former.rounds(34, 39), { round: 40 });

  const successor = new Coordinator(fleet, id, 1, 2);
  successor.sequence = storedSequence;
  successor.state = { ...former.state, round: 35 };
  await successor.publish(successor.rounds(30, 34));
  await successor.acknowledged();
  expect(await runOf(id)).toMatchObject({
    status: 'RUNNING',
    attempt: 1,
    progress: { round: 35 },
    ledger: { committedRounds: 35, committedExamples: 35 * 256, expectedExamples: 35 * 256 },
  });
  successor.fallSilent();
});

it('a primary that says goodbye ends nothing while its standby lives; with both gone another attempt begins', async () => {
  const { id, coordinator, beats } = await running();
  beats['p1']!.stop();
  await fleet.report({ kind: 'goodbye', role: 'server', id: 'p1' });
  await fleet.report({
    kind: 'server.failed',
    runId: id,
    attempt: 1,
    index: 1,
    serverId: 's0',
    code: 'Error',
    message: 'a standby is of no use',
  });
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(await runOf(id)).toMatchObject({ status: 'RUNNING', attempt: 1 });
  beats['s1']!.stop();
  await fleet.report({ kind: 'goodbye', role: 'server', id: 's1' });
  await until('the next attempt', async () => (await runOf(id)).attempt === 2);
  coordinator.fallSilent();
});
