/** What coordinators report is stored once, in order, and acknowledged only when it is stored; what subscribers see has no gap and no double. */
import {
  acknowledgedOf,
  ackFieldName,
  controlKey,
  REPORT_STREAM,
  reportKey,
  reportSignature,
  sendReport,
  type JournalEntry,
  type Report,
} from '@paceline/control-plane';
import { createClient, type Client } from 'graphql-ws';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { Database } from '../../apps/api/src/database/database.js';
import { MAX_SUBSCRIPTIONS_PER_KEY, Subscriptions } from '../../apps/api/src/graphql/subscriptions.js';
import { ReportsConsumer } from '../../apps/api/src/reports/consumer.js';
import { RunSignals } from '../../apps/api/src/runs/run-signals.js';
import { StatusMoves } from '../../apps/api/src/runs/status-moves.js';
import { Coordinator, ScriptedFleet } from './scripted-fleet.js';
import { ControlPlane, createRun, TOKEN_SECRET, until, type Caller } from './services.js';

let plane: ControlPlane;
let fleet: ScriptedFleet;
let serverId: string;
beforeAll(async () => {
  plane = await ControlPlane.start();
  fleet = await new ScriptedFleet(plane.redis.url).ready();
  serverId = fleet.beat('server').id;
  fleet.beat('worker', 'worker-a');
});
afterAll(async () => {
  await fleet?.stop();
  await plane?.stop();
});

const ackOf = async (id: string) => acknowledgedOf((await fleet.control(id, ackFieldName(1))) ?? undefined, 1)?.sequence ?? NaN;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function training(caller: Caller = plane.admin, spec: object = {}): Promise<Coordinator> {
  const id = await createRun(caller, spec);
  const coordinator = await fleet.claim(id, [serverId]);
  const held = await until('the step task of this run', async () => {
    const task = await fleet.takeStepTask();
    return task.payload.runId === id && task;
  });
  await coordinator.train('worker-a', held.payload);
  await coordinator.acknowledged();
  return coordinator;
}

/** An api that has no time answers with an error, and nothing about the run: it is asked again. */
async function stored(id: string) {
  const ask = async () => {
    const { data } = await readStored(id);
    return data?.run && { data };
  };
  const { data } = await until('an answer about the run', ask);
  return { ...data.run, events: data.run.events.edges.map(({ node }: { node: object }) => node) };
}

const readStored = (id: string) =>
  plane.admin.gql(
    'query($id: ID!) { run(id: $id) { status statusReason progress { round epoch loss examplesPerSecond workers phase } ledger { committedRounds committedExamples expectedExamples refusedFrames } traffic { toServersBytes toWorkersBytes denseToServersBytes denseToWorkersBytes workers { workerId toServersBytes toWorkersBytes denseToServersBytes denseToWorkersBytes } } events(first: 100) { edges { node { seq type message attempt } } } } }',
    { id },
  );

describe('a journal', () => {
  it('is stored once however often it is sent, and acknowledged up to where nothing is missing', async () => {
    const coordinator = await training();
    const { runId } = coordinator;
    const entries = coordinator.number([...coordinator.rounds(0, 29), coordinator.event('view 2')]);
    const [first, second, third] = [entries.slice(0, 20), entries.slice(20, 40), entries.slice(40)] as const;
    await coordinator.send(first);
    await coordinator.send(third); // the second is missing
    await until('the first part', async () => (await ackOf(runId)) === first.at(-1)!.sequence);
    await pause(400);
    expect(await ackOf(runId)).toBe(first.at(-1)!.sequence);
    await coordinator.send(entries, { after: 0 });
    await coordinator.acknowledged();
    await coordinator.send(second);
    await coordinator.send(entries);
    await pause(500);
    const run = await stored(runId);
    expect(run.ledger).toMatchObject({ committedRounds: 30, committedExamples: 30 * 256, expectedExamples: 30 * 256 });
    expect(run.events.filter((event: { message: string }) => event.message === 'view 2')).toHaveLength(1);
    expect(run.events.map((event: { seq: number }) => event.seq)).toEqual(run.events.map((_: unknown, i: number) => i + 1));
  });

  it('of an asynchronous run brings the staleness of its updates', async () => {
    const coordinator = await training(plane.admin, { strategy: { kind: 'parameter-server', mode: 'async' } });
    const rows = coordinator
      .rounds(0, 3)
      .map((entry, i) =>
        entry.kind === 'metric' ? { ...entry, staleness: i < 4 ? 0.5 : 2, stalenessCounts: i < 4 ? [2, 2] : [0, 1, 2, 1] } : entry,
      );
    await coordinator.publish(rows);
    await coordinator.acknowledged();
    const { data } = await plane.admin.gql(
      'query($id: ID!) { run(id: $id) { staleness metrics(names: ["staleness"], maxPoints: 1) { points { value min max rounds } } } }',
      { id: coordinator.runId },
    );
    expect(data.run).toEqual({ staleness: [4, 6, 4, 2], metrics: [{ points: [{ value: 1.25, min: 0.5, max: 2, rounds: 4 }] }] });
  });

  it('that had to thin has gaps, and they do not stop it', async () => {
    const coordinator = await training();
    const entries = coordinator.number(coordinator.rounds(0, 9)).filter(({ sequence }) => sequence % 3 !== 0);
    await coordinator.send(entries.slice(0, 5), { after: 0 });
    await coordinator.send(entries.slice(5), { after: entries[4]!.sequence });
    await until('the acknowledgement', async () => (await ackOf(coordinator.runId)) === entries.at(-1)!.sequence);
  });

  it('of an older attempt is dropped, says so, and changes nothing', async () => {
    const coordinator = await training();
    const database = plane.api.app.get(Database);
    await database.$transaction([
      database.run.update({ where: { id: coordinator.runId }, data: { attempt: 2 } }),
      database.attempt.create({ data: { runId: coordinator.runId, number: 2 } }),
    ]);
    const before = await stored(coordinator.runId);
    await coordinator.publish([...coordinator.rounds(0, 5), { kind: 'event', type: 'run.failed', message: 'an old voice', data: {} }], {
      round: 6,
    });
    await coordinator.acknowledged(true);
    await until('it is told to stop', async () => (await fleet.redis.hget(controlKey(coordinator.runId), 'action')) === '1:cancel');
    const after = await stored(coordinator.runId);
    expect([after.status, after.events.length, after.ledger.committedRounds]).toEqual([before.status, before.events.length, 0]);
    expect(await plane.api.app.get(StatusMoves).move(coordinator.runId, 1, { to: 'FAILED', reason: 'old fence' })).toBe(false);
  });

  it('moves the progress of its run, and an older state that comes late does not move it back', async () => {
    const coordinator = await training();
    const bytes = { toServersBytes: 10, toWorkersBytes: 3e9, denseToServersBytes: 740, denseToWorkersBytes: 12e9 };
    await coordinator.publish(coordinator.rounds(0, 9), {
      round: 10,
      refusedFrames: 3,
      traffic: { ...bytes, workers: [{ workerId: 'w', ...bytes }] },
    });
    await coordinator.acknowledged();
    expect(await stored(coordinator.runId)).toMatchObject({
      status: 'RUNNING',
      progress: { round: 10, epoch: 0, loss: 0.2, examplesPerSecond: 9_000, workers: 1, phase: 'training' },
      ledger: { refusedFrames: 3 },
      traffic: { ...bytes, workers: [{ workerId: 'w', ...bytes }] },
    });
    const metrics = await (await fetch(`${plane.api.url}/metrics`)).text();
    const measured = [...metrics.matchAll(/^paceline_training_traffic_bytes\{direction="(\w+)",measure="(\w+)"\} (\S+)$/gm)];
    expect(measured.map(([, direction, measure, value]) => [direction, measure, Number(value)])).toEqual([
      ['to_servers', 'sent', 10],
      ['to_servers', 'dense', 740],
      ['to_workers', 'sent', 3e9],
      ['to_workers', 'dense', 12e9],
    ]);
    const late = { kind: 'journal', runId: coordinator.runId, attempt: 1, entries: [], state: { ...coordinator.state, round: 4 } };
    await plane.api.app.get(ReportsConsumer)['journal'].store(late as never, '1-1');
    expect((await stored(coordinator.runId)).progress.round).toBe(10);
  });

  it('ends its run: with a result, with a failure, and with a result that cannot be read', async () => {
    const [good, bad, broken] = [await training(), await training(), await training()];
    await good.finish();
    await bad.publish(
      [
        {
          kind: 'event',
          type: 'run.failed',
          message: 'poison round 7: replica 2 lost its holder 5 times',
          data: { cause: 'POISON_ROUND' },
        },
      ],
      {
        phase: 'failed',
        seats: [],
      },
    );
    await broken.finish({ weightsSha256: 'short' });
    await Promise.all([good, bad, broken].map((coordinator) => coordinator.acknowledged()));
    const { data } = await plane.admin.gql(
      'query($id: ID!) { run(id: $id) { status finishedAt result { accuracy weightsSha256 weightsUrl } progress { round etaSeconds workers } stepTasks { state } } }',
      { id: good.runId },
    );
    expect(data.run).toMatchObject({
      status: 'SUCCEEDED',
      result: { accuracy: 0.975, weightsSha256: 'ab'.repeat(32), weightsUrl: null },
      progress: { round: 1175, etaSeconds: null, workers: 0 },
    });
    expect(new Set(data.run.stepTasks.map((task: { state: string }) => task.state))).toEqual(new Set(['CLOSED']));
    expect(await stored(bad.runId)).toMatchObject({ status: 'FAILED', statusReason: 'poison round 7: replica 2 lost its holder 5 times' });
    expect((await stored(broken.runId)).statusReason).toMatch(/result cannot be read: weightsSha256/);
    // Over is over.
    await good.publish([{ kind: 'event', type: 'run.failed', message: 'too late', data: {} }]);
    await good.acknowledged();
    expect((await stored(good.runId)).status).toBe('SUCCEEDED');
  });

  it('believes who serves only what is signed', async () => {
    const coordinator = await training();
    const { runId } = coordinator;
    const { counters } = plane.api.app.get(ReportsConsumer);
    const refusedBefore = counters.refused;
    const finished = { sequence: 1, atMs: 1, kind: 'event', type: 'run.failed', message: 'forged', data: { cause: 'INTERNAL' } } as const;
    const counts = { round: 1, totalRounds: 1, view: 1, refusedFrames: 0, refusedConnections: 0 };
    const state = { phase: 'failed' as const, seats: [], waitingFor: null, ...counts };
    const forged: Report = { kind: 'journal', runId, attempt: 1, after: 0, entries: [finished], state };
    const address = { index: 0, serverId: 'ps-forger', host: '127.0.0.1', port: 9, unixPath: null };
    const others: Report[] = [
      { kind: 'server.claimed', runId, attempt: 1, address },
      { kind: 'server.failed', runId, attempt: 1, index: 0, code: 'FORGED', message: 'forged' },
      { kind: 'lead.asked', runId, attempt: 1, index: 0, serverId: 'ps-forger', want: 'drop', term: 1 },
      { kind: 'heartbeat', role: 'server', member: fleet.member('server', 'ps-forger') },
      { kind: 'goodbye', role: 'server', id: serverId },
    ];
    for (const report of [forged, ...others]) await sendReport(fleet.redis, report);
    const keys = [
      reportKey(TOKEN_SECRET, { ...forged, attempt: 2 }),
      reportKey('another secret of more than thirty-two letters', forged),
      '',
    ];
    for (const key of keys) await sendReport(fleet.redis, forged, () => key);
    const text = JSON.stringify(forged);
    const signature = reportSignature(reportKey(TOKEN_SECRET, forged), JSON.stringify({ ...forged, entries: [] }));
    await fleet.redis.xadd(REPORT_STREAM, '*', 'report', text, 'signature', signature);
    await coordinator.publish([{ kind: 'event', type: 'worker.joined', message: 'it is true', data: {} }]);
    await coordinator.acknowledged();
    expect(counters.refused - refusedBefore).toBe(10);
    expect(await plane.admin.gql('{ servers { id } }').then(({ data }) => JSON.stringify(data))).not.toContain('ps-forger');
    const { status, events } = await stored(runId);
    expect([
      status,
      events.filter((event: object) => (event as { message: string }).message === 'forged'),
      (events.at(-1) as { message: string }).message,
    ]).toEqual(['RUNNING', [], 'it is true']);
  });

  it('survives bad neighbours: forged, oversized and unknown reports are counted and dropped', async () => {
    const coordinator = await training();
    const { counters } = plane.api.app.get(ReportsConsumer);
    const refusedBefore = counters.refused;
    const add = (text: string) => fleet.redis.xadd(REPORT_STREAM, '*', 'report', text);
    await add('not json');
    await add(
      JSON.stringify({
        kind: 'journal',
        runId: coordinator.runId,
        attempt: 1,
        entries: [{ kind: 'event', sequence: 99, atMs: 1, type: 'run.finished' }],
        state: {},
      }),
    );
    await add(JSON.stringify({ kind: 'heartbeat', role: 'admin', member: {} }));
    await add(`"${'x'.repeat(2_000_000)}"`);
    await fleet.redis.xadd(REPORT_STREAM, '*', 'other', 'field');
    await fleet.report({
      kind: 'seat.left',
      runId: '0190c5a5-0000-7000-8000-000000000000',
      attempt: 1,
      seat: 0,
      incarnation: 0,
      workerId: 'w',
      reason: 'no such run',
    });
    await coordinator.publish([
      { kind: 'event', type: 'view.changed', message: 'nul \0 and half \ud800 a pair', data: { '\0': ['\udfff'] } },
    ]);
    await coordinator.acknowledged();
    expect(counters.refused - refusedBefore).toBe(5);
    expect((await stored(coordinator.runId)).events.at(-1)).toMatchObject({ message: 'nul \ufffd and half \ufffd a pair' });
    await until('the stream is empty', async () => (await fleet.redis.xlen(REPORT_STREAM)) < 5);
  });
});

describe('subscribers', () => {
  const open = (key: string): Client =>
    createClient({
      url: plane.api.url.replace('http', 'ws') + '/graphql',
      webSocketImpl: WebSocket,
      connectionParams: { authorization: `Bearer ${key}` },
      retryAttempts: 0,
      lazyCloseTimeout: 0,
    });
  const EVENTS = 'subscription($runId: ID!, $afterSeq: Int) { runEvents(runId: $runId, afterSeq: $afterSeq) { seq type } }';
  const METRICS =
    'subscription($runId: ID!, $afterRound: Int) { runMetrics(runId: $runId, afterRound: $afterRound) { seq round rounds loss } }';

  /** Collects until the subscription ends; `take` ends it after so many. */
  async function collect(
    client: Client,
    query: string,
    variables: object,
    take = Infinity,
  ): Promise<{ rows: Record<string, number>[]; error: unknown }> {
    const rows: Record<string, number>[] = [];
    try {
      for await (const { data, errors } of client.iterate<Record<string, Record<string, number>>>({
        query,
        variables: variables as Record<string, unknown>,
      })) {
        if (errors) return { rows, error: errors };
        rows.push(Object.values(data!)[0]!);
        if (rows.length >= take) break;
      }
    } catch (error) {
      return { rows, error };
    }
    return { rows, error: undefined };
  }

  it('get what is stored, then what comes, without a gap or a double over reconnects, and an end when the run is over', async () => {
    const coordinator = await training();
    const { runId } = coordinator;
    const seen: number[] = [];
    const reader = (async () => {
      // A new connection every seven events, each going on where the last one stopped.
      for (;;) {
        const client = open(plane.adminKey);
        const { rows, error } = await collect(client, EVENTS, { runId, afterSeq: seen.at(-1) ?? 0 }, 7);
        await client.dispose();
        expect(error).toBeUndefined();
        seen.push(...rows.map(({ seq }) => seq!));
        if (rows.length < 7) return;
      }
    })();
    for (let i = 0; i < 30; i++) await coordinator.publish([coordinator.event(`a ${i}`), coordinator.event(`b ${i}`)]);
    await coordinator.finish();
    await reader;
    expect(seen).toEqual(Array.from({ length: seen.length }, (_, i) => i + 1));
    const run = await plane.admin.gql('query($id: ID!) { run(id: $id) { events(last: 1) { edges { node { seq type } } } } }', {
      id: runId,
    });
    expect(run.data.run.events.edges[0].node).toEqual({ seq: seen.length, type: 'status.changed' });
    await until('nobody waits', () => plane.api.app.get(RunSignals).watchCount === 0 && plane.api.app.get(Subscriptions).count === 0);
  });

  it('get metrics at most ten times a second, and every round in exactly one row', async () => {
    const coordinator = await training();
    const client = open(plane.adminKey);
    const startedAt = performance.now();
    const reading = collect(client, METRICS, { runId: coordinator.runId, afterRound: 9 });
    for (let round = 0; round < 300; round += 10) {
      await coordinator.publish(coordinator.rounds(round, round + 9), { round: round + 10 });
      await pause(60);
    }
    await coordinator.finish();
    const { rows, error } = await reading;
    const seconds = (performance.now() - startedAt) / 1000;
    await client.dispose();
    expect(error).toBeUndefined();
    expect(rows.reduce((sum, { rounds }) => sum + rounds!, 0)).toBe(290);
    expect(rows.at(-1)!.round).toBe(299);
    expect(rows.length).toBeLessThanOrEqual(10 * seconds + 10);
    expect(rows.map(({ round }) => round!)).toEqual([...rows.map(({ round }) => round!)].sort((a, b) => a - b));
  });

  it('free everything when they go away in the middle', async () => {
    const coordinator = await training();
    const clients = Array.from({ length: 20 }, () => open(plane.adminKey));
    const waiting = clients.map((client) => collect(client, EVENTS, { runId: coordinator.runId, afterSeq: 10_000 }));
    await until('all wait', () => plane.api.app.get(Subscriptions).count === 20);
    for (const client of clients) client.terminate();
    await Promise.all(waiting);
    await until('nobody waits', () => plane.api.app.get(RunSignals).watchCount === 0 && plane.api.app.get(Subscriptions).count === 0);
    await coordinator.finish();
  });

  it('are refused: another team, an unknown run, a query, a deep or long document, too many at once', async () => {
    const coordinator = await training();
    const { runId } = coordinator;
    const stranger = await plane.team('subscribing-strangers');
    const codeOf = async (client: Client, query: string, variables: object = { runId }) => {
      const { error } = await collect(client, query, variables);
      return (error as { extensions: { code: string } }[])[0]!.extensions.code;
    };
    const theirs = open(stranger.key);
    expect(await codeOf(theirs, EVENTS)).toBe('NOT_FOUND');
    expect(await codeOf(theirs, METRICS)).toBe('NOT_FOUND');
    await theirs.dispose();
    const client = open(plane.adminKey);
    expect(await codeOf(client, EVENTS, { runId: 'nonsense' })).toBe('NOT_FOUND');
    expect(await codeOf(client, '{ viewer { isAdmin } }')).toBe('BAD_REQUEST');
    expect(await codeOf(client, `subscription { runEvents(runId: "x") { ${'seq '.repeat(3_000)} } }`)).toBe('GRAPHQL_VALIDATION_FAILED');
    expect(
      await codeOf(client, `subscription { ${Array.from({ length: 40 }, (_, i) => `a${i}: runEvents(runId: "x") { seq }`).join(' ')} }`),
    ).toMatch(/GRAPHQL_VALIDATION_FAILED|BAD_USER_INPUT/);
    await client.dispose();

    // Each connection holds fifty, a key a hundred: of 150 a third are refused, and the others go on.
    const crowd = Array.from({ length: 3 }, () => open(plane.adminKey));
    const refused: string[] = [];
    const all = crowd.flatMap((each) =>
      Array.from({ length: 50 }, () =>
        collect(each, EVENTS, { runId, afterSeq: 10_000 }).then(
          ({ error }) => Array.isArray(error) && refused.push(error[0].extensions.code),
        ),
      ),
    );
    await until('the limit', () => refused.length === 50 && plane.api.app.get(Subscriptions).count === MAX_SUBSCRIPTIONS_PER_KEY);
    expect(new Set(refused)).toEqual(new Set(['TOO_BUSY']));
    for (const each of crowd) each.terminate();
    await Promise.all(all);
    await coordinator.finish();
  });

  it('are cut off by a message that is too long, and nobody else is', async () => {
    const socket = new WebSocket(plane.api.url.replace('http', 'ws') + '/graphql', 'graphql-transport-ws');
    await new Promise((resolve) => socket.once('open', resolve));
    const closed = new Promise<number>((resolve) => socket.once('close', resolve));
    socket.send(`{"type":"connection_init","payload":{"authorization":"Bearer ${plane.adminKey}"}}`);
    socket.send('x'.repeat(200_000));
    expect(await closed).toBe(1009);
    expect((await plane.admin.gql('{ viewer { isAdmin } }')).status).toBe(200);
  });
});

it('entries are numbered by the journal, whatever arrives first', async () => {
  const coordinator = await training();
  const entries: JournalEntry[] = coordinator.number(Array.from({ length: 40 }, (_, i) => coordinator.event(`e${i}`)));
  for (let i = 0; i < 40; i += 10)
    await Promise.all([coordinator.send(entries.slice(i, i + 10)), coordinator.send(entries.slice(0, i + 5))]);
  await coordinator.send(entries, { after: 0 });
  await coordinator.acknowledged();
  const run = await stored(coordinator.runId);
  const texts = run.events.map((event: { message: string }) => event.message).filter((text: string) => /^e\d+$/.test(text));
  expect([...texts].sort()).toEqual(entries.map((entry) => (entry as { message: string }).message).sort());
});
