/** Faults of the round protocol that need a hand on the clock or on a single connection. */
import { expect, test } from 'vitest';
import { FrameType, type FrameHeader } from '@paceline/protocol';
import { RoundCluster, type RoundClusterOptions } from './round-cluster.js';
import { expectedWeights } from './tiny-model.js';
import { patient } from './patience.js';

const base: RoundClusterOptions = { replicas: 4, servers: 1, rounds: 6, examples: 37 };
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function until(what: string, condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + patient(5_000); !condition(); await turn())
    if (Date.now() > deadline) throw new Error(`waited 5 s for ${what}`);
}

/** Seconds pass, in which every member's own heartbeats arrive. */
async function pass(cluster: RoundCluster, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    for (const member of cluster.members) if (!member.frozen) member.machine.heartbeat(0);
    for (let i = 0; i < 4; i++) await turn();
    cluster.advance(1_000);
  }
}

const events = (cluster: RoundCluster, type: string) =>
  cluster.journal.batch(1_000).filter((entry) => entry.kind === 'event' && entry.type === type);

for (const hangsBefore of ['its contribution', 'its node'])
  test(`a compute thread that hangs before ${hangsBefore} costs its own member the seat, not the ones that are given its replicas`, async () => {
    const cluster = new RoundCluster(base);
    const hung = cluster.join();
    const other = cluster.join();
    let hangs = false;
    hung.onNode = (round) => !(hangs ||= round === 2);
    hung.machine.contribution = (
      (tell) =>
      (round: number, ...rest: [number, number, readonly number[]]) => {
        if (round !== 2 || hangsBefore === 'its node') tell(round, ...rest);
      }
    )(hung.machine.contribution.bind(hung.machine));
    let slow = false;
    other.onNode = (round) => ((slow ||= round === 2 && other.computed.filter((step) => step.startsWith('2/')).length > 2), true);
    await cluster.round(2);
    await until('the hang', () => hangs && cluster.coordinator.waitingFor() === null);
    await turn();
    await pass(cluster, 62);
    await cluster.finished();
    expect(events(cluster, 'worker.lost').map((entry) => (entry as { message: string }).message)).toEqual([
      expect.stringContaining(hung.id) as string,
    ]);
    expect(cluster.weightsOf(other)).toEqual(expectedWeights(base));
  });

test('evaluation measures that were lost with a connection are asked for again when the worker is back', async () => {
  const cluster = new RoundCluster({ ...base, rounds: 1 });
  const worker = cluster.join();
  const measured: number[] = [];
  const tell = worker.machine.evaluated.bind(worker.machine);
  let lost = true;
  worker.machine.evaluated = (...args) => {
    measured.push(args[1]);
    if (!lost) tell(...args);
  };
  await until('all blocks to be measured', () => measured.length === 3);
  lost = false;
  worker.connect(0); // the old connection is still open at the server
  await cluster.finished(2_000);
  expect(cluster.outcome?.outcome).toBe('finished');
});

test('a second copy of a parameter chunk that breaks on its way does not touch the generation in use', async () => {
  const options = { ...base, rounds: 1_000 };
  const cluster = new RoundCluster(options);
  const worker = cluster.join();
  await cluster.round(1);
  const { machine } = worker;
  const store = machine['options'].store;
  const header: FrameHeader = {
    type: FrameType.parameters,
    codec: 0,
    flags: 0,
    attempt: 1,
    term: 1,
    view: 1,
    nodeLo: 0,
    nodeHi: 0,
    payloadCrc: 0,
    round: machine.round,
    chunk: 0,
    length: machine['options'].chunks[0]!.length * 4,
  };
  await until('a complete generation', () => ((header.round = machine.round), machine['isComplete'](machine.round)));
  expect(machine.payloadFor(header).buffer).not.toBe(store.bytes(header.round).buffer);
  cluster.coordinator.cancel();
});

test('a socket that breaks again and again in one round is no poison round', async () => {
  const cluster = new RoundCluster({ ...base, servers: 2, rounds: 3 });
  const worker = cluster.join();
  const step = worker['step'].bind(worker);
  let held: (() => void) | undefined;
  worker['step'] = (round, replicas) => (round === 1 && !held ? (held = () => step(round, replicas)) : step(round, replicas), undefined);
  await until('the step', () => held !== undefined);
  for (let i = 0; i < 8; i++) {
    worker.connections[1]!.close();
    await until('the break to be heard', () => events(cluster, 'worker.away').length > i);
    worker.connect(1);
    await until('the worker to be back', () => events(cluster, 'worker.back').length > i);
    await pass(cluster, 1);
  }
  held!();
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('finished');
});

test('a silent server ends the attempt, named; so does one that never comes', async () => {
  const silent = new RoundCluster({ ...base, servers: 2, rounds: 100_000 });
  silent.join();
  await silent.round(2);
  silent.silentServers.add(1);
  silent.shardDelayMs = [0, 60_000];
  await silent.clock.pass(50);
  await pass(silent, 11);
  expect(silent.outcome).toEqual({
    outcome: 'failed',
    message: expect.stringMatching(/^parameter server 1 was lost in round \d+: nothing heard for \d+ ms$/) as string,
  });
  const missing = new RoundCluster({ ...base, servers: 2, absentServers: 1 });
  missing.join();
  await pass(missing, 31);
  expect(missing.outcome).toEqual({ outcome: 'failed', message: 'waited too long for parameter server 1 to connect to the coordinator' });
});

test('a member that stops reading holds two generations of memory, and catches up when it reads again', async () => {
  const options = { ...base, replicas: 1, rounds: 120 };
  const cluster = new RoundCluster(options);
  const standby = cluster.join();
  await cluster.round(2);
  cluster.join(); // takes over the only replica
  await cluster.round(4);
  const stream = (standby.connections[0] as unknown as { stream: { setReading(on: boolean): void } }).stream;
  stream.setReading(false);
  let most = 0;
  while (cluster.coordinator.round < 100) {
    most = Math.max(most, cluster.arena.bytesInUse);
    await turn();
  }
  const generationBytes = cluster.layout.totalLength * 4;
  expect(most).toBeLessThan(12 * generationBytes + (1 << 20));
  stream.setReading(true);
  await cluster.finished();
  const clock = setInterval(() => standby.machine.tick(), 100);
  await until(
    'the last generation',
    () => standby.machine.round === options.rounds && standby.machine['isComplete'](options.rounds),
  ).finally(() => clearInterval(clock));
  expect(cluster.weightsOf(standby)).toEqual(expectedWeights(options));
});

test('what is sent again while a shard is behind is held once', async () => {
  const options = { ...base, replicas: 1, servers: 2, rounds: 4 };
  const cluster = new RoundCluster(options);
  cluster.shardDelayMs = [0, 150];
  const worker = cluster.join();
  await cluster.round(1);
  for (let i = 0; i < 6; i++) {
    // Each view makes the worker send its nodes again.
    worker.machine.message(0, {
      type: 'view',
      view: worker.machine.view + 1,
      term: 1,
      round: worker.machine.round,
      members: [{ id: worker.id, seat: 0, n: 0, replicas: [0] }],
    });
    await cluster.clock.pass(5);
  }
  expect(worker.connections.every((connection) => connection.isOpen)).toBe(true);
  cluster.coordinator.cancel();
});
