import { expect, test } from 'vitest';
import {
  CUT_ROWS,
  DECISION_ROWS,
  RoundCluster,
  STALL_ROWS,
  VALIDATION_ROWS,
  rowsNeverTaken,
  type RoundClusterOptions,
} from './round-cluster.js';
import { STANDBY_CLUSTER_ROWS } from './standby-cluster.js';
import { expectedWeights } from './tiny-model.js';

const base: RoundClusterOptions = { replicas: 4, servers: 1, rounds: 6, examples: 37 };

for (const replicas of [1, 2, 3, 4, 5, 8]) {
  for (const servers of [1, 2, 4]) {
    test(`bits do not depend on workers: R=${replicas}, ${servers} server(s)`, async () => {
      const options = { ...base, replicas, servers };
      const expected = expectedWeights(options);
      for (const workers of [1, 2, 3]) {
        const cluster = new RoundCluster(options);
        for (let i = 0; i < workers; i++) cluster.join();
        await cluster.finished();
        for (const member of cluster.members) expect(cluster.weightsOf(member)).toEqual(expected);
        expect(cluster.coordinator.ledger.trainedExamples).toBe(options.rounds * options.examples);
      }
    });
  }
}

test('fewer examples than replicas: the empty ones send zeros and count nothing', async () => {
  const options = { ...base, replicas: 5, examples: 3 };
  const cluster = new RoundCluster(options);
  cluster.join();
  cluster.join();
  await cluster.finished();
  expect(cluster.weightsOf(cluster.members[0]!)).toEqual(expectedWeights(options));
});

test('a worker killed at any node of any round: others finish the round with the same bits', async () => {
  const options = { ...base, replicas: 5, servers: 2 };
  const expected = expectedWeights(options);
  for (let round = 0; round < options.rounds; round++) {
    for (const when of ['before', 'after']) {
      const cluster = new RoundCluster(options);
      const victim = cluster.join();
      cluster.join();
      cluster.join();
      let fired = false;
      victim.onNode = (k) => {
        if (k !== round) return true;
        fired = true;
        if (when === 'before') victim.kill();
        else setImmediate(() => victim.kill());
        return when === 'after';
      };
      await cluster.finished();
      expect(fired).toBe(true);
      expect(cluster.outcome?.outcome).toBe('finished');
      expect(cluster.weightsOf(cluster.members[1]!)).toEqual(expected);
      expect(cluster.coordinator.ledger.trainedExamples).toBe(options.rounds * options.examples);
    }
  }
});

test('a worker that joins late gets the parameters and its share at the next round', async () => {
  const options = { ...base, rounds: 12, servers: 2 };
  const cluster = new RoundCluster(options);
  cluster.join();
  await cluster.round(4);
  const late = cluster.join();
  await cluster.finished();
  expect(late.computed.length).toBeGreaterThan(0);
  expect(cluster.weightsOf(late)).toEqual(expectedWeights(options));
});

test('a run that begins with three workers gives nothing out before, and goes on when one is lost afterwards', async () => {
  const options = { ...base, rounds: 12, servers: 2, startWorkers: 3 };
  const cluster = new RoundCluster(options);
  const first = cluster.join();
  const lost = cluster.join();
  const settled = async (): Promise<void> => {
    for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
  };
  await settled();
  expect([cluster.coordinator.phase, cluster.coordinator.waitingFor()]).toEqual([
    'waiting',
    expect.stringMatching(/^1 more worker to take/),
  ]);
  lost.kill();
  await settled();
  expect(cluster.coordinator.waitingFor()).toMatch(/^2 more workers/);
  const others = [cluster.join(), cluster.join()];
  await cluster.round(3);
  others[0]!.kill();
  await cluster.finished();
  expect([first, ...others].map(({ computed }) => computed.length > 0)).toEqual([true, true, true]);
  expect(cluster.weightsOf(first)).toEqual(expectedWeights(options));
});

test('a broken connection to one shard heals: what was lost is sent again', async () => {
  const options = { ...base, rounds: 12, servers: 2 };
  const cluster = new RoundCluster(options);
  const worker = cluster.join();
  const other = cluster.join();
  let broke = 0;
  worker.onNode = (round) => {
    if (round % 3 === 1) {
      broke++;
      worker.connections[1]!.close();
      setImmediate(() => worker.connect(1));
    }
    return true;
  };
  await cluster.finished();
  expect(broke).toBeGreaterThan(0);
  expect(cluster.weightsOf(other)).toEqual(expectedWeights(options));
});

test('a silent worker is lost after its heartbeat deadline, its late push is refused', async () => {
  const options = { ...base, rounds: 8, servers: 1 };
  const cluster = new RoundCluster(options);
  const silent = cluster.join();
  const other = cluster.join();
  let release: (() => void) | undefined;
  silent.onNode = (round) => {
    if (round !== 3) return true;
    silent.frozen = true;
    release = () => void (silent.frozen = false);
    return false;
  };
  await cluster.round(3);
  while (!release) await new Promise((resolve) => setImmediate(resolve));
  cluster.coordinator.memberMessage(other.id, { type: 'heartbeat', progress: 1 });
  cluster.advance(2_900);
  cluster.coordinator.memberMessage(other.id, { type: 'heartbeat', progress: 2 });
  cluster.advance(200);
  await cluster.finished();
  expect(cluster.journal.batch(100).some((entry) => entry.kind === 'event' && entry.type === 'worker.lost')).toBe(true);
  expect(cluster.weightsOf(other)).toEqual(expectedWeights(options));
});

test('the holder of one replica dies five times in one round: poison round, named', async () => {
  const cluster = new RoundCluster({ ...base, replicas: 1 });
  for (let i = 0; i < 5; i++) {
    const victim = cluster.join(`victim${i}`, 0);
    let died = false;
    victim.onNode = () => {
      died = true;
      return false;
    };
    victim.machine.contribution = () => undefined;
    while (!died) await new Promise((resolve) => setImmediate(resolve));
    victim.kill();
    await cluster.clock.pass(5);
    cluster.advance(3_100);
  }
  const message = 'poison round: replica 0 of round 0 has lost its worker 5 times; each time: its socket closed';
  expect(cluster.outcome).toEqual({ outcome: 'failed', message: expect.stringContaining(message) as string });
});

test('a second holder of a seat is refused', async () => {
  const cluster = new RoundCluster(base);
  cluster.join('first', 0);
  cluster.join('second', 0);
  await cluster.finished();
  expect(cluster.refusals).toContain('SEAT_TAKEN');
});

test('no memory is held when a run is over', async () => {
  const cluster = new RoundCluster({ ...base, servers: 2 });
  cluster.join();
  cluster.join();
  await cluster.finished();
  await cluster.clock.pass(20);
  for (const shard of cluster.shards) shard.end();
  await cluster.clock.pass(20);
  expect(cluster.arena.bytesInUse).toBe(0);
  expect(cluster.nodesReleased).toBe(cluster.nodesMade);
});

test('a worker that asks to leave goes at the next commit and owes nothing', async () => {
  const options = { ...base, rounds: 10, servers: 2 };
  const cluster = new RoundCluster(options);
  const leaver = cluster.join();
  const stays = cluster.join();
  let left = false;
  leaver.onNode = (round) => {
    if (round === 3 && !left) {
      left = true;
      leaver.machine.leave('another run waits');
    }
    return true;
  };
  await cluster.finished();
  expect(leaver.machine.table.state).toBe('OVER');
  expect(leaver.computed.some((step) => Number(step.split('/')[0]) > 4)).toBe(false);
  expect(cluster.weightsOf(stays)).toEqual(expectedWeights(options));
});

test('the last worker leaves: the run waits for another and goes on', async () => {
  const options = { ...base, rounds: 10 };
  const cluster = new RoundCluster(options);
  const first = cluster.join();
  await cluster.round(3);
  first.machine.leave('another run waits');
  while (first.machine.table.state !== 'OVER') await new Promise((resolve) => setImmediate(resolve));
  expect(cluster.coordinator.waitingFor()).toBe('a worker to take a step task');
  const second = cluster.join('second', 0);
  await cluster.finished();
  expect(cluster.weightsOf(second)).toEqual(expectedWeights(options));
});

test('everybody dies and comes back: replicas go round in a circle, bits do not', async () => {
  const options = { ...base, rounds: 8, servers: 2 };
  const cluster = new RoundCluster(options);
  const a = cluster.join();
  const b = cluster.join();
  // The link of b to shard 1 breaks before its node is sent; a takes over and dies; b comes back and owes everything.
  let broke = false;
  b.onNode = (round) => {
    if (round === 2 && !broke) {
      broke = true;
      b.connections[1]!.close();
      a.onNode = () => {
        a.kill();
        return false;
      };
      cluster.clock.later(5, () => b.connect(1));
    }
    return true;
  };
  await cluster.finished();
  expect(broke).toBe(true);
  expect(cluster.weightsOf(b)).toEqual(expectedWeights(options));
});

test('cancel ends every member; a lost server ends the attempt with its name', async () => {
  const cancelled = new RoundCluster({ ...base, rounds: 1_000 });
  const member = cancelled.join();
  await cancelled.round(2);
  cancelled.coordinator.cancel();
  await cancelled.finished();
  expect(cancelled.outcome?.outcome).toBe('cancelled');
  await cancelled.clock.pass(20);
  expect(member.machine.table.state).toBe('OVER');
  const lost = new RoundCluster({ ...base, rounds: 1_000, servers: 2 });
  lost.join();
  await lost.round(2);
  lost.coordinator.serverLost(1, 'socket closed');
  expect(lost.outcome).toEqual({
    outcome: 'failed',
    message: expect.stringMatching(/^parameter server 1 was lost in round \d+: socket closed$/) as string,
  });
});

test('a worker that miscounts its examples is dropped, not believed', async () => {
  const options = { ...base, rounds: 5 };
  const cluster = new RoundCluster(options);
  const liar = cluster.join();
  const honest = cluster.join();
  const tell = liar.machine.contribution.bind(liar.machine);
  liar.machine.contribution = (round, replica, examples, sums) => tell(round, replica, round === 2 ? examples + 1 : examples, sums);
  await cluster.finished();
  expect(cluster.weightsOf(honest)).toEqual(expectedWeights(options));
  expect(cluster.coordinator.ledger.trainedExamples).toBe(options.rounds * options.examples);
});

test('a worker killed while it measures the evaluation split: its blocks go to another', async () => {
  const options = { ...base, rounds: 2 };
  const cluster = new RoundCluster(options);
  const victim = cluster.join();
  cluster.join();
  victim.machine.evaluated = () => victim.kill();
  await cluster.finished();
  expect(cluster.outcome?.outcome).toBe('finished');
});

test('a shard that hears of views and commits late holds early frames and arrives at the same bits', async () => {
  const options = { ...base, rounds: 8, servers: 2 };
  const cluster = new RoundCluster(options);
  cluster.shardDelayMs = [0, 30];
  cluster.join();
  await cluster.round(2);
  const late = cluster.join();
  await cluster.finished();
  expect(cluster.weightsOf(late)).toEqual(expectedWeights(options));
});

test('a standby that hears of commits late learns from the parameters that they have happened', async () => {
  const options = { ...base, replicas: 1, rounds: 30, servers: 2 };
  const cluster = new RoundCluster(options);
  const standby = cluster.join();
  await cluster.round(2);
  cluster.join(); // takes over the only replica
  await cluster.round(4);
  standby.messageDelayMs = 250;
  await cluster.finished();
  await cluster.clock.pass(500);
  expect(cluster.weightsOf(standby)).toEqual(expectedWeights(options));
});

test('a parameter chunk that does not come is pulled', async () => {
  const options = { ...base, rounds: 6 };
  const cluster = new RoundCluster(options);
  const worker = cluster.join();
  let dropped = 0;
  worker.dropsData = (generation, chunk) => generation === 3 && chunk === 1 && dropped++ === 0;
  await cluster.round(3);
  const clock = setInterval(() => {
    cluster.coordinator.memberMessage(worker.id, { type: 'heartbeat', progress: 1 });
    cluster.advance(400);
  }, 5);
  await cluster.finished().finally(() => clearInterval(clock));
  expect(dropped).toBe(2);
  expect(cluster.weightsOf(worker)).toEqual(expectedWeights(options));
});

test('what was said before changes nothing when it is said again', async () => {
  const options = { ...base, rounds: 8, servers: 1 };
  const cluster = new RoundCluster(options);
  const worker = cluster.join();
  await cluster.round(2);
  const other = cluster.join();
  await cluster.round(5);
  for (const message of [...other.heard, ...worker.heard]) {
    if (message.type !== 'view' && message.type !== 'commit') continue;
    worker.machine.message(0, message.type === 'view' ? { ...message, view: 0 } : message);
    if (message.type === 'commit') cluster.shards[0]!.onCommit(message);
  }
  await cluster.finished();
  expect(cluster.weightsOf(worker)).toEqual(expectedWeights(options));
});

test('a contribution of an earlier round is dropped', async () => {
  const options = { ...base, servers: 1 };
  const cluster = new RoundCluster(options);
  const worker = cluster.join();
  await cluster.round(2);
  cluster.coordinator.memberMessage(worker.id, { type: 'contribution', round: 0, replica: 0, examples: 9, sums: [1e9, 0] });
  await cluster.finished();
  expect(cluster.coordinator.ledger.trainedExamples).toBe(options.rounds * options.examples);
});

test('an attempt that cannot go on fails with its reason', async () => {
  const cluster = new RoundCluster({ ...base, rounds: 1_000 });
  cluster.join();
  await cluster.round(1);
  cluster.coordinator.fail('the disk is full');
  expect(cluster.outcome).toEqual({ outcome: 'failed', message: 'the disk is full' });
});

test('every row of the state tables was taken by some test', () => {
  const elsewhere = [...CUT_ROWS, ...DECISION_ROWS, ...STALL_ROWS, ...STANDBY_CLUSTER_ROWS, ...VALIDATION_ROWS];
  expect(rowsNeverTaken().filter((row) => !elsewhere.includes(row))).toEqual([]);
});

test('mixed engines: workers of other fingerprints take part, the fast ones get more replicas, and every example counts once', async () => {
  const options = { ...base, replicas: 8, rounds: 8, mixedEngines: true };
  const cluster = new RoundCluster(options);
  const fast = cluster.join('fast', 0, { fingerprint: 'tfjs-tensorflow', speed: 3000 });
  const slow = cluster.join('slow', 1, { fingerprint: 'tfjs-wasm', speed: 1000 });
  await cluster.finished();
  const replicasIn = (member: typeof fast, round: number): number => member.computed.filter((step) => step.startsWith(`${round}/`)).length;
  expect([replicasIn(fast, 7), replicasIn(slow, 7)]).toEqual([6, 2]);
  expect(cluster.coordinator.ledger.trainedExamples).toBe(options.rounds * options.examples);
  // The arithmetic is that of any assignment: only what the engines round differently may differ.
  expect(cluster.weightsOf(fast)).toEqual(expectedWeights(options));
});

test('a run that is pinned to an engine admits no other, also when that one comes first', async () => {
  const cluster = new RoundCluster({ ...base, fingerprint: 'tfjs-tensorflow' });
  const other = cluster.join('other', 0, { fingerprint: 'tfjs-wasm' });
  cluster.join('right', 0, { fingerprint: 'tfjs-tensorflow' });
  await cluster.finished();
  expect(other.computed).toEqual([]);
  expect(cluster.outcome?.outcome).toBe('finished');
});
