/**
 * bench recovery: how long a run stands still when a process of it is killed: worker, server, server with a standby, in all modes
 *
 * One long run of the MNIST MLP on real processes for each kind. Again and again, once the run goes steadily, a process of it is
 * SIGKILLed and another started in its place. The figure is the time from the kill to the next committed round, less one round of
 * the run; for a server without a standby that round is the first one of the next attempt, rounds that are redone come after it.
 * A loss that a standby covers must also cost no committed round: those that were lost are counted. In modes async and ssp a round is as
 * many updates as the run has replicas, whichever they are. With `--check` it exits with 1 when a bar is missed. `--kinds` picks rows:
 * worker, server, standby, server-async, standby-async, server-ssp, standby-ssp.
 */
import { parseArgs } from 'node:util';
import { DataPlane, Stack } from '@paceline/testkit';
import { median } from './median.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    kinds: { type: 'string', default: 'worker,server,standby,server-async,standby-async,server-ssp,standby-ssp' },
    kills: { type: 'string', default: '10' },
    batch: { type: 'string', default: '256' },
    check: { type: 'boolean', default: false },
  },
});
const kills = Number(flags.kills);
const DEADLINE_MS = 60_000;
const STEADY_ROUNDS = 15;
/** @param {number} ms */
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/**
 * @param {Omit<Extract<NonNullable<import('@paceline/spec').RunSpecInput['strategy']>, { kind: 'parameter-server' }>, 'kind'>} strategy
 * @returns {import('@paceline/spec').RunSpecInput}
 */
const spec = (strategy) => ({
  model: 'mlp',
  globalBatch: Number(flags.batch),
  replicas: 4,
  length: { rounds: 1_000_000 },
  restarts: 100,
  checkpoint: { everyRounds: 10, final: false },
  strategy: { kind: 'parameter-server', ...strategy },
});

/**
 * @template T
 * @param {string} what
 * @param {() => T | Promise<T>} condition
 * @returns {Promise<Exclude<T, undefined | null | false>>}
 */
async function until(what, condition) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== null && value !== false)
      return /** @type {Exclude<typeof value, undefined | null | false>} */ (value);
    if (Date.now() > deadline) throw new Error(`waited ${DEADLINE_MS} ms for ${what}`);
    await sleep(20);
  }
}

/**
 * Commits as the coordinator dated them.
 * @param {readonly { atMs: number, round: number }[]} commits
 * @param {number} killedMs
 */
const stillMs = (commits, killedMs) => {
  const before = commits.filter(({ atMs }) => atMs <= killedMs).slice(-50);
  const [newest, after] = [before.at(-1), commits.find(({ atMs }) => atMs > killedMs)];
  if (!newest || !after) return undefined;
  const roundMs = median(before.slice(1).map(({ atMs }, i) => atMs - (before[i]?.atMs ?? NaN)));
  return { stillMs: after.atMs - killedMs - roundMs, roundMs, committed: newest.round + 1, next: after.round };
};

/** @typedef {NonNullable<ReturnType<typeof stillMs>> & { lostRounds?: number }} Stillness */

async function workerKills() {
  const plane = await DataPlane.start({ servers: 1, workers: 2 });
  /** @type {Stillness[]} */
  const results = [];
  try {
    const run = await plane.train(spec({ servers: 1 }));
    const commits = () => run.entries.filter((entry) => entry.kind === 'metric');
    while (results.length < kills) {
      const seats = await until('two workers with replicas', () => {
        const held = run.state?.seats.filter(({ replicas }) => replicas.length > 0) ?? [];
        return held.length === 2 && held;
      });
      const round = run.state?.round ?? 0;
      await until('steady rounds', () => (run.state?.round ?? 0) >= round + STEADY_ROUNDS);
      const victim = plane.workers.find(({ ready }) => ready.id === seats[results.length % 2]?.workerId);
      if (!victim) throw new Error('who holds the seat is no worker of the bench');
      const killedMs = Date.now();
      await victim.kill('SIGKILL');
      results.push(await until('the next committed round', () => stillMs(commits(), killedMs)));
      await plane.addWorker();
    }
  } finally {
    await plane.stop();
  }
  return results;
}

/**
 * @param {0 | 1} standby
 * @param {'sync' | 'async' | 'ssp'} [mode]
 */
async function serverKills(standby, mode = 'sync') {
  const stack = await Stack.start({ servers: standby ? 5 : 3, workers: 2 });
  /** @type {Stillness[]} */
  const results = [];
  try {
    const { id } = await stack.client.createRun(spec({ servers: 2, standby, mode }));
    /** @param {number} fromRound */
    const commits = async (fromRound) => {
      const [series] = await stack.client.metrics(id, { names: ['loss'], fromRound: Math.max(0, fromRound), maxPoints: 2_000 });
      return series?.points ?? [];
    };
    while (results.length < kills) {
      const begun = await until('both workers', async () => {
        const run = await stack.client.run(id);
        return run?.status === 'RUNNING' && run.progress.workers === 2 && run;
      });
      const run = await until('steady rounds', async () => {
        const now = await stack.client.run(id);
        return now && now.progress.round >= begun.progress.round + STEADY_ROUNDS && now;
      });
      const index = results.length % 2;
      const server = run.servers.find((each) => each.index === index && (each.role === undefined || each.role === 'PRIMARY'));
      const victim = stack.servers.find(({ ready }) => ready.id === server?.serverId);
      if (!victim) throw new Error(`who holds shard ${index} is no server of the bench`);
      const old = await commits(run.progress.round - 60);
      const killedMs = Date.now();
      await stack.end(victim, 'SIGKILL');
      const measured = await until('the next committed round', async () => {
        const now = await stack.client.run(id);
        if (!standby && now?.attempt === run.attempt) return undefined;
        const fresh = (await commits(Math.max(0, run.progress.round - 60))).filter(({ atMs }) => atMs > killedMs + 5);
        return stillMs([...old.filter(({ atMs }) => atMs <= killedMs), ...fresh], killedMs);
      });
      const committed = Math.max(measured.committed, run.progress.round);
      results.push({ ...measured, lostRounds: Math.max(0, committed - measured.next) });
      process.stderr.write(`${mode}, ${standby ? 'standby' : 'server'} ${index}: ${Math.round(measured.stillMs)} ms\n`);
      await stack.addServer();
      // A standby is placed with an attempt: a pause and a resume give the run one again.
      if (standby && results.length < kills) {
        await stack.client.pauseRun(id);
        await until('the pause', async () => (await stack.client.run(id))?.status === 'PAUSED');
        await stack.client.resumeRun(id);
      }
    }
  } finally {
    await stack.stop();
  }
  return results;
}

/**
 * @typedef {object} Kill
 * @property {string} killed
 * @property {() => Promise<Stillness[]>} measure
 * @property {number} barMs
 * @property {number} [barRounds]
 */
/**
 * The most that the median may be, and with a standby the most committed rounds that may be lost.
 * @type {Readonly<Record<string, Kill>>}
 */
const KINDS = {
  worker: { killed: 'a worker', measure: workerKills, barMs: 1_000 },
  server: { killed: 'a parameter server, without standby', measure: () => serverKills(0), barMs: 5_000 },
  standby: { killed: 'a parameter server, with a standby', measure: () => serverKills(1), barMs: 2_000, barRounds: 0 },
  'server-async': { killed: 'a parameter server, mode async, without standby', measure: () => serverKills(0, 'async'), barMs: 5_000 },
  'standby-async': {
    killed: 'a parameter server, mode async, with a standby',
    measure: () => serverKills(1, 'async'),
    barMs: 2_000,
    barRounds: 0,
  },
  'server-ssp': { killed: 'a parameter server, mode ssp, without standby', measure: () => serverKills(0, 'ssp'), barMs: 5_000 },
  'standby-ssp': {
    killed: 'a parameter server, mode ssp, with a standby',
    measure: () => serverKills(1, 'ssp'),
    barMs: 2_000,
    barRounds: 0,
  },
};
const rows = [];
for (const kind of flags.kinds.split(',')) {
  const row = KINDS[kind];
  if (!row) throw new Error(`--kinds takes ${Object.keys(KINDS).join(', ')}`);
  const { killed, measure, barMs, barRounds } = row;
  const results = await measure();
  const still = results.map((result) => result.stillMs);
  const lostRounds = barRounds === undefined ? undefined : results.reduce((sum, result) => sum + (result.lostRounds ?? 0), 0);
  rows.push({
    killed,
    kills: results.length,
    medianMs: Math.round(median(still)),
    barMs,
    lowestMs: Math.round(Math.min(...still)),
    highestMs: Math.round(Math.max(...still)),
    roundMs: Math.round(median(results.map((result) => result.roundMs))),
    ...(barRounds === undefined ? {} : { lostRounds, barRounds }),
    holds: median(still) < barMs && (barRounds === undefined || lostRounds === undefined || lostRounds <= barRounds),
  });
}
if (flags.json) console.log(JSON.stringify({ bench: 'recovery', rows }));
else console.table(rows);
process.exit(flags.check && rows.some(({ holds }) => !holds) ? 1 : 0);
