/**
 * The contract of whoever stores a run (libs/testkit), on the api's own classes over a real PostgreSQL. Beside each run stands the same one in
 * the memory of the simulator: after every step all rows of both are compared, so that what the simulator believes is what the api does.
 */
import { startMigratedPostgres } from '@paceline/testkit';
import { createLogger, type RunningService } from '@paceline/runtime';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LeadAnswer, Report, ObservedRun, StoredCoordinator } from '@paceline/control-plane';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ClusterSpecs } from '../../apps/api/src/cluster-specs/cluster-specs.js';
import { DataStore } from '../../apps/api/src/datasets/data-store.js';
import { Datasets } from '../../apps/api/src/datasets/datasets.js';
import { Database } from '../../apps/api/src/database/database.js';
import { migrate } from '../../apps/api/src/database/migrations.js';
import { ShardLeads } from '../../apps/api/src/dispatch/shard-leads.js';
import type { ControlHashes } from '../../apps/api/src/dispatch/control-hashes.js';
import { DispatchSignal } from '../../apps/api/src/dispatch/dispatch-signal.js';
import { Executor } from '../../apps/api/src/dispatch/executor.js';
import type { Queues } from '../../apps/api/src/dispatch/queues.js';
import { Fleet } from '../../apps/api/src/fleet/fleet.js';
import { ServerHealthReader } from '../../apps/api/src/fleet/server-health.js';
import { IdempotencyKeys } from '../../apps/api/src/idempotency/idempotency-keys.js';
import { FleetReports } from '../../apps/api/src/reports/fleet-reports.js';
import { InitialWeights } from '../../apps/api/src/models/initial-weights.js';
import { CheckpointStore } from '../../apps/api/src/models/checkpoint-store.js';
import { WeightUploads } from '../../apps/api/src/models/weight-uploads.js';
import { WeightsOfRounds } from '../../apps/api/src/models/stored-weights.js';
import { Weights } from '../../apps/api/src/runs/weights.js';
import { StrategyChoices } from '../../apps/api/src/runs/strategy-choice.js';
import { JournalStore } from '../../apps/api/src/reports/journal-store.js';
import { SteadyJournal } from '../../apps/api/src/reports/steady-journal.js';
import { Attempts } from '../../apps/api/src/runs/attempts.js';
import { CreateRun } from '../../apps/api/src/runs/create-run.js';
import { FleetMemory } from '../../apps/api/src/runs/fleet-memory.js';
import { PrepareRun } from '../../apps/api/src/runs/prepare-run.js';
import { RunDatasets } from '../../apps/api/src/runs/run-dataset.js';
import { RunRequests } from '../../apps/api/src/runs/run-requests.js';
import { RunSignals } from '../../apps/api/src/runs/run-signals.js';
import { Run } from '../../apps/api/src/runs/run.types.js';
import { specOf as specOfRow } from '../../apps/api/src/runs/run-row.js';
import { StatusMoves } from '../../apps/api/src/runs/status-moves.js';
import { memoryRun } from '../../libs/testkit/src/simulator/stored/stored-contract-memory.fixture.js';
import { ATTEMPT_SCENARIOS } from '../../libs/testkit/src/simulator/stored/stored-contract-attempts.fixture.js';
import { HISTORY_SCENARIOS } from '../../libs/testkit/src/simulator/stored/stored-contract-history.fixture.js';
import { PLACE_SCENARIOS } from '../../libs/testkit/src/simulator/stored/stored-contract-places.fixture.js';
import {
  CONTRACT_SPEC,
  ContractScript,
  event,
  ledger,
  numbered,
  parentOfRow,
  specInput,
  specOf,
  storedJson,
  written,
  type ContractOrigin,
  type ContractRows,
  type ContractRun,
  type ContractSpec,
} from '../../libs/testkit/src/simulator/stored/stored-contract.fixture.js';
import { Random } from '../../libs/testkit/src/simulator/world/random.js';

/** PostgreSQL runs as another user where the tests run as root: the folder is its own. */
const dataDir = join(tmpdir(), `paceline-stored-run-${process.pid}-postgres`);
let postgres: RunningService;
let api: ReturnType<typeof wire>;

/** What the api makes of its settings, without its loops: nothing moves but what a step asks for. Redis is told and never asked. */
function wire(databaseUrl: string) {
  const log = createLogger('api');
  log.level = 'error';
  const settings = { databaseUrl, redisUrl: '', host: '', port: 0, tokenSecret: 'a secret of more than thirty-two characters' };
  const database = new Database(settings, log);
  const told = new Map<string, Record<string, string>>();
  const control = {
    write: (runId: string, fields: Record<string, string>) => Promise.resolve(void told.set(runId, { ...told.get(runId), ...fields })),
  } as unknown as ControlHashes;
  const queues = { remove: () => Promise.resolve(), reprioritise: () => Promise.resolve() } as unknown as Queues;
  const [signals, dispatch, fleet] = [new RunSignals(), new DispatchSignal(), new Fleet(database, log)];
  const moves = new StatusMoves(database, signals);
  const attempts = new Attempts(moves);
  const keys = new IdempotencyKeys(database, log);
  const checkpoints = new CheckpointStore(settings, log);
  const weights = new WeightsOfRounds(database, checkpoints, new Weights(settings));
  const initialWeights = new InitialWeights(database, checkpoints, weights, new WeightUploads(checkpoints, log), log);
  const data = new DataStore(settings, log);
  const datasets = new RunDatasets(new Datasets(database, data), data, fleet);
  const strategies = new StrategyChoices(fleet, moves, attempts);
  const preparing = new PrepareRun(
    database,
    new ClusterSpecs(database, keys),
    datasets,
    initialWeights,
    new FleetMemory(fleet),
    strategies,
  );
  const shardLeads = new ShardLeads(database, control, moves, signals);
  return {
    database,
    told,
    shardLeads,
    executor: new Executor(database, queues, control, moves, attempts, shardLeads, signals, log),
    reports: new FleetReports(database, fleet, new ServerHealthReader(fleet), attempts, moves, signals, dispatch, log),
    journal: new JournalStore(database, moves, attempts, signals, new SteadyJournal(database), strategies),
    requests: new RunRequests(database, keys, moves, attempts, signals, dispatch, settings, new FleetMemory(fleet)),
    create: withoutRedis(new CreateRun(database, keys, fleet, preparing, moves, dispatch, settings, initialWeights)),
  };
}

/** Nobody hears which checkpoints are pinned. */
function withoutRedis(create: CreateRun): CreateRun {
  Object.assign(create, { pinned: { tell: () => Promise.resolve() } });
  return create;
}

const viewer = { teamId: '', apiKeyId: '00000000-0000-7000-8000-000000000000', isAdmin: false, isReadOnly: false };

beforeAll(async () => {
  postgres = await startMigratedPostgres({ dataDir, temporary: true, port: 0 });
  await migrate(postgres.url);
  api = wire(postgres.url);
  viewer.teamId = (await api.database.team.create({ data: { name: 'contract' } })).id;
});
afterAll(async () => {
  await api?.database.onApplicationShutdown();
  await postgres?.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

async function apiRun(given: ContractSpec, from?: ContractOrigin): Promise<ContractRun> {
  const run = await api.create.create(viewer, specInput(given), from ? { resumeFrom: { runId: from.run.id, round: from.round } } : {});
  if (!(run instanceof Run)) throw new Error(`no run was made: ${JSON.stringify(run)}`);
  const { id } = run;
  return {
    id,
    async carryOut(decidedFor, action) {
      const named =
        'task' in action ? { ...action, task: { ...action.task, id: await taskId(id, decidedFor.attempt, action.task) } } : action;
      const { attempt, status } = decidedFor;
      await api.executor.carryOut({ runId: id, attempt, status } as ObservedRun, named);
    },
    take: (report) => api.reports.take(report),
    askLead: async (asked) => void (await api.shardLeads.decide(asked)),
    async lead(attempt, index) {
      api.told.delete(id);
      await api.shardLeads.tell(id, attempt, index);
      const field = api.told.get(id)?.[`lead${index}`];
      return field === undefined ? undefined : (JSON.parse(field) as LeadAnswer);
    },
    async journal(report, streamId) {
      const { ack, mustStop } = await api.journal.store(report, streamId);
      return { ack, mustStop };
    },
    async ask(asked) {
      const { requests } = api;
      const outcome = await {
        pause: () => requests.pause(viewer, id),
        cancel: () => requests.cancel(viewer, id),
        resume: () => requests.resume(viewer, id, 'servers' in asked ? asked.servers : undefined),
        scale: () => requests.scale(viewer, id, 'workers' in asked ? asked.workers : 0),
        extend: () =>
          requests.extend(viewer, id, asked.request === 'extend' ? { rounds: asked.rounds ?? null, epochs: asked.epochs ?? null } : {}),
      }[asked.request]();
      return outcome instanceof Run ? 'done' : 'refused';
    },
    rows: () => read(id),
  };
}

async function taskId(runId: string, attempt: number, { seat, incarnation }: { seat: number; incarnation: number }): Promise<string> {
  const row = await api.database.stepTask.findUnique({ where: { runId_attempt_seat_incarnation: { runId, attempt, seat, incarnation } } });
  return row?.id ?? '00000000-0000-7000-8000-000000000000';
}

async function read(id: string): Promise<ContractRows> {
  const { database } = api;
  const where = { runId: id };
  const [run, attempts, servers, tasks, outbox, checkpoints, events, ...entries] = await Promise.all([
    database.run.findUniqueOrThrow({ where: { id } }),
    database.attempt.findMany({ where, orderBy: { number: 'asc' } }),
    database.runServer.findMany({ where, orderBy: [{ attempt: 'asc' }, { index: 'asc' }, { role: 'asc' }] }),
    database.stepTask.findMany({ where, orderBy: [{ attempt: 'asc' }, { seat: 'asc' }, { incarnation: 'asc' }] }),
    database.outbox.findMany({ where: { ...where, sentAt: null } }),
    database.checkpoint.findMany({ where, orderBy: [{ attempt: 'asc' }, { round: 'asc' }] }),
    database.runEvent.findMany({ where, orderBy: { seq: 'asc' } }),
    database.metric.findMany({ where, select: { attempt: true, sequence: true } }),
    database.ledgerRange.findMany({ where, select: { attempt: true, sequence: true } }),
  ]);
  const coordinator = run.coordinator as StoredCoordinator | null;
  return {
    run: {
      status: run.status,
      statusReason: run.statusReason,
      isWaiting: run.isWaiting,
      attempt: run.attempt,
      isCancelWanted: run.cancelRequestedAt !== null,
      isPauseWanted: run.pauseRequestedAt !== null,
      hasNextAttempt: run.nextAttemptAt !== null,
      isFinished: run.finishedAt !== null,
      workersWanted: run.workersWanted,
      restartsUsed: run.restartsUsed,
      restartsTotal: run.restartsTotal,
      bestRound: Number(run.bestRound),
      serverCount: run.serverCount,
      totalRounds: Number(run.totalRounds),
      length: specOfRow(run).length,
      coordinator: coordinator && {
        attempt: coordinator.attempt,
        phase: coordinator.phase,
        round: coordinator.round,
        seats: coordinator.seats.length,
      },
    },
    attempts: attempts.map((row) => ({
      number: row.number,
      hasStarted: row.startedAt !== null,
      hasEnded: row.endedAt !== null,
      endCause: row.endCause,
      endReason: row.endReason,
      endRound: row.endRound === null ? null : Number(row.endRound),
      parent: parentOfRow(row),
      storedSequence: Number(row.storedSequence),
      coordinatorTerm: row.coordinatorTerm,
      seatFailures: row.seatFailures,
      hasFailedSeat: row.lastFailureAt !== null,
    })),
    places: servers.map((row) => ({
      attempt: row.attempt,
      index: row.index,
      role: row.role,
      incarnation: row.incarnation,
      term: row.term,
      serverId: row.serverId,
      port: row.port,
      storage: row.storage,
      isClaimed: row.claimedAt !== null,
      isLoading: row.isLoading,
      isDropped: row.droppedAt !== null,
    })),
    seats: tasks.map((row) => ({
      attempt: row.attempt,
      seat: row.seat,
      incarnation: row.incarnation,
      state: row.state,
      heldSeats: row.heldSeats,
      workerId: row.workerId,
      replicas: row.replicas,
      wasHeld: row.heldAt !== null,
      closeReason: row.closeReason,
    })),
    jobs: outbox.map(({ jobId }) => jobId.replace(`${id}-`, '')).sort(),
    checkpoints: checkpoints.map((row) => ({
      attempt: row.attempt,
      round: row.round,
      isInvalid: row.invalidAt !== null,
      isRemoved: row.removedAt !== null,
    })),
    entries: [...events.filter(({ sequence }) => sequence !== null), ...entries.flat()]
      .map(({ attempt, sequence }) => `${attempt}/${String(sequence).padStart(4, '0')}`)
      .sort(),
    events: events.map(({ attempt, sequence, type, message, data }) => ({
      attempt,
      sequence: sequence === null ? null : Number(sequence),
      type,
      message,
      data: storedJson(data),
    })),
  };
}

/** Both at once: every step is taken on both, and what comes of it must be equal. */
async function bothRuns(given: ContractSpec, from?: ContractOrigin): Promise<ContractRun> {
  const real = await apiRun(given, from);
  const memory = memoryRun(given, real.id, from);
  const same = async <T>(what: string, step: (run: ContractRun) => Promise<T>): Promise<T> => {
    const [ofApi, ofMemory] = [await step(real), await step(memory)];
    expect(ofMemory, `${what}: in memory, and in the api`).toEqual(ofApi);
    return ofApi;
  };
  return {
    id: real.id,
    carryOut: (decidedFor, action) => same(action.kind, (run) => run.carryOut(decidedFor, action)),
    take: (report) => same(report.kind, (run) => run.take(report)),
    askLead: (asked) => same(`${asked.serverId} ${asked.want}`, (run) => run.askLead(asked)),
    lead: (attempt, index) => same('lead', (run) => run.lead(attempt, index)),
    journal: (report, streamId) => same('journal', (run) => run.journal(report, streamId)),
    ask: (asked) => same(asked.request, (run) => run.ask(asked)),
    rows: () => same('rows', (run) => run.rows()),
  };
}

for (const scenario of [...PLACE_SCENARIOS, ...ATTEMPT_SCENARIOS, ...HISTORY_SCENARIOS])
  test(scenario.name, async () => {
    const make = async (from?: ContractOrigin): Promise<ContractScript> => new ContractScript(await bothRuns(specOf(scenario), from));
    await scenario.play(await make(), make);
  });

test('an api that stands still inside of a transaction does not keep the row of a run: PostgreSQL ends its session', async () => {
  const [row] = await api.database.$queryRaw<{ ms: number }[]>`
    SELECT "setting"::int AS "ms" FROM pg_settings WHERE "name" = 'idle_in_transaction_session_timeout'`;
  expect(row!.ms).toBeGreaterThan(0);
  expect(row!.ms).toBeLessThan(10_000); // docs/guarantees.md: another goes on within 15 s, with its own deadlines
});

test('whatever comes in whatever order, both have the same rows', async () => {
  for (const seed of [1, 2, 3]) {
    const random = new Random(seed);
    const script = new ContractScript(await bothRuns({ ...CONTRACT_SPEC, standby: seed === 2 ? 1 : 0, restarts: 20 }));
    for (let step = 0; step < 60; step++) await anyStep(script, random);
  }
});

/** A step of the present attempt or of another, on rows that are there or are not. */
async function anyStep(script: ContractScript, random: Random): Promise<void> {
  const { run, places, attempts } = await script.run.rows();
  const attempt = random.chance(0.85) ? run.attempt : run.attempt - random.pick([1, -1]);
  const status = random.chance(0.9) ? run.status : random.pick(['QUEUED', 'RUNNING', 'RECOVERING'] as const);
  const [seat, incarnation, index] = [random.int(0, 2), random.int(0, 1), random.int(0, 1)];
  const role = random.pick(['primary', 'standby'] as const);
  const place = random.pick(places);
  const task = { id: '', seat, incarnation, workerId: null, replicas: [], heldSeats: 0, createdAtMs: 0, heldAtMs: null };
  const act = (action: Parameters<ContractScript['act']>[0]) => script.act(action, { attempt, status });
  const server = `${role === 'primary' ? 'p' : 's'}${index}-a${attempt}`;
  const storedSequence = attempts.find(({ number }) => number === attempt)?.storedSequence ?? 0;
  const next = Math.max(1, storedSequence + random.int(-1, 2));
  const asked = { kind: 'lead.asked', runId: script.run.id, attempt, index, serverId: server, term: 1 } as const satisfies Partial<Report>;
  await random.pick<() => Promise<unknown>>([
    () => script.train(run.attempt, random.int(1, 30)),
    () => script.begin(),
    () => script.begin(),
    () => act({ kind: 'open-seat', seat, heldSeats: incarnation }),
    () => act({ kind: 'open-seat', seat, heldSeats: incarnation }),
    () => act({ kind: 'hold-seat', seat, incarnation, workerId: `w${seat}`, replicas: [seat], isNew: random.chance(0.7) }),
    () => act({ kind: 'close-seat', task, why: 'any' }),
    () => act({ kind: 'reprioritise-seat', task, heldSeats: random.int(0, 3) }),
    () =>
      act({
        kind: 'make-placement-again',
        index: place.index,
        role: place.role,
        incarnation: place.incarnation,
        serverId: place.serverId,
        why: 'any',
      }),
    () => act({ kind: 'make-placement-again', index, role, incarnation, serverId: random.pick([null, server]), why: 'any' }),
    () => script.claim(attempt, index, random.pick([server, 'other']), { role, loading: random.chance(0.3), incarnation }),
    () => act({ kind: 'end-attempt', end: { kind: 'failed', cause: random.pick(['SERVER_LOST', 'CHECKPOINT_INVALID']), message: 'any' } }),
    () => script.serverFailed(attempt, index, server, random.pick(['NOT_STARTED', 'CHECKPOINT_INVALID'])),
    () => script.seatFailed(attempt, seat, incarnation, random.pick(['w', 'v'])),
    () => script.seatLeft(attempt, seat, incarnation),
    () => act({ kind: 'forget-seat-failures' }),
    () => act({ kind: 'explain', reason: `reason ${seat}`, isWaiting: true }),
    () => script.ask({ request: 'pause' }),
    () => script.ask({ request: 'resume', servers: random.pick([null, null, 2, 3]) }),
    () => script.ask({ request: 'scale', workers: random.int(0, 5) }),
    () => script.ask({ request: 'extend', rounds: 10 }),
    () => script.run.askLead({ ...asked, want: random.pick(['drop', 'promote']) }),
    () =>
      script.journal(attempt, numbered(next, [ledger(next), written(attempt, next)]), {
        state: { phase: 'training', round: next },
        term: random.int(1, 2),
      }),
    () => script.journal(attempt, numbered(next, [event('view.changed'), event('run.paused')])),
    () => script.journal(attempt, numbered(next + 2, [ledger(next + 2), written(attempt, next + 2)])),
  ])();
  await script.run.rows();
}
