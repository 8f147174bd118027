/**
 * `bench mlp --stack`: what a round of the MLP costs each process of the local stack while a dashboard shows the run, and what the control plane costs by the second
 * with fewer rounds.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { Stack } from '@paceline/testkit';
import { engineAlone } from './engine-alone.mjs';
import { median } from './median.mjs';
import { OpenPage } from './open-page.mjs';
import { familyMs, threadTimes } from './thread-times.mjs';

/** Far more than are measured: the bench cancels the run. */
const ENDLESS = 1_000_000;
const DEADLINE_MS = 120_000;
/** A run begins when all workers have their seats; its first rounds come with them. */
const WARM_UP_ROUNDS = 2;
/** Of `--seconds`, so long a run trains before it is measured: V8 compiles meanwhile, and after 15 s a coordinator reports once a second. */
const WARM_UP_SHARE = 0.8;
const LOOK_MS = 100;
const MAX_POINTS = 2_000;
/** Of quick rounds in a second, so many are wanted for `timesSlow`: a machine that does not reach them has not paced them by the delay. */
const LEAST_QUICK_ROUNDS = 70;
export const BARS = { cpuMsApi: 0.2, cpuMsBeside: 6, timesSlow: 1.1 };

/**
 * A delay each way paces the rounds: the gradients travel once, and the parameters once. The batch of paced runs is small, so that they are in time on a busy machine too.
 * @type {readonly { pace: 'free' | 'slow' | 'quick', link?: string, batch?: number }[]}
 */
const PACES = [{ pace: 'free' }, { pace: 'slow', link: '10gbit,245ms', batch: 8 }, { pace: 'quick', link: '10gbit,1ms', batch: 8 }];

/** @typedef {{ server: number, workerMain: number, workerCompute: number, workerOthers: number, api: number, postgres: number, redis: number }} Roles */
/** @typedef {import('./thread-times.mjs').ThreadTimes} ThreadTimes */

/** @param {number | undefined} pid @returns {ThreadTimes} */
function threadsOf(pid) {
  const times = threadTimes(pid);
  if (!times) throw new Error('this system does not say what processor time a thread takes: --stack needs Linux');
  return times;
}

/** @param {Stack} stack */
const timesNow = (stack) => ({
  atMs: Date.now(),
  servers: stack.servers.map(({ child }) => threadsOf(child.pid)),
  workers: stack.workers.map(({ child }) => threadsOf(child.pid)),
  api: familyMs(stack.api.child.pid ?? 0),
  postgres: familyMs(stack.postgres.pid),
  redis: familyMs(stack.redis.pid),
});

/**
 * Processor time between two looks, in milliseconds; of the servers and workers the sum. A worker's thread that has taken most, beside the main one, is the one that computes.
 * @param {ReturnType<typeof timesNow>} before
 * @param {ReturnType<typeof timesNow>} after
 * @returns {Roles}
 */
function spentBetween(before, after) {
  const roles = { server: 0, workerMain: 0, workerCompute: 0, workerOthers: 0 };
  for (const [i, { mainMs, othersMs }] of after.servers.entries())
    roles.server += mainMs + othersMs - (before.servers[i]?.mainMs ?? 0) - (before.servers[i]?.othersMs ?? 0);
  for (const [i, { mainMs, byThread }] of after.workers.entries()) {
    const threads = [...byThread].map(([thread, ms]) => ms - (before.workers[i]?.byThread.get(thread) ?? 0));
    const compute = Math.max(0, ...threads);
    roles.workerMain += mainMs - (before.workers[i]?.mainMs ?? 0);
    roles.workerCompute += compute;
    roles.workerOthers += threads.reduce((sum, ms) => sum + ms, -compute);
  }
  return { ...roles, api: after.api - before.api, postgres: after.postgres - before.postgres, redis: after.redis - before.redis };
}

/**
 * Rounds committed between two moments, by the times at which the coordinator has dated them.
 * @param {Stack} stack
 * @param {string} id
 * @param {number} fromMs
 * @param {number} toMs
 */
async function roundsBetween(stack, id, fromMs, toMs) {
  /** @type {readonly { round: number, atMs: number }[]} */
  let points = [];
  // The api stores the last rounds a little later.
  await stack.until('a round after those that are measured', DEADLINE_MS, async () => {
    const [series] = await stack.client.metrics(id, { names: ['loss'], maxPoints: MAX_POINTS });
    points = series?.points ?? [];
    return (points.at(-1)?.atMs ?? 0) > toMs;
  });
  /** @param {number} ms the round that was being computed then, with its fraction */
  const roundAt = (ms) => {
    const next = points.findIndex(({ atMs }) => atMs > ms);
    const [left, right] = [points[next - 1], points[next]];
    if (!left || !right) throw new Error('too few rounds came to be measured: give more with --seconds');
    return left.round + ((right.round - left.round) * (ms - left.atMs)) / (right.atMs - left.atMs);
  };
  return roundAt(toMs) - roundAt(fromMs);
}

/**
 * One run, and the page that shows it.
 * @param {Stack} stack
 * @param {{ batch: number, link?: string | undefined, seconds: number }} what
 */
async function measured(stack, { batch, link, seconds }) {
  const workers = stack.workers.length;
  const { id } = await stack.client.createRun({
    model: 'mlp',
    globalBatch: batch * workers,
    replicas: workers,
    length: { rounds: ENDLESS },
    optimizer: { name: 'sgd', learningRate: 0.1 },
    strategy: { kind: 'parameter-server', servers: stack.servers.length, startWorkers: workers },
    checkpoint: { final: false, everySeconds: 0 },
    ...(link ? { link } : {}),
  });
  const page = new OpenPage({ url: stack.url, key: stack.key }, id);
  try {
    const deadline = Date.now() + DEADLINE_MS;
    while ((page.run?.progress.round ?? 0) < WARM_UP_ROUNDS) {
      page.check();
      if (Date.now() > deadline) throw new Error(`waited ${DEADLINE_MS} ms for round ${WARM_UP_ROUNDS}: the run is ${page.run?.status}`);
      await pause(LOOK_MS);
    }
    await pause(seconds * WARM_UP_SHARE * 1000);
    const before = timesNow(stack);
    await pause(seconds * 1000);
    const after = timesNow(stack);
    const rounds = await roundsBetween(stack, id, before.atMs, after.atMs);
    if (page.answers === 0 || page.rows === 0) throw new Error('the page of the run was told nothing');
    return { spent: spentBetween(before, after), rounds, seconds: (after.atMs - before.atMs) / 1000 };
  } finally {
    await page.close();
    await stack.client.cancelRun(id);
    await stack.until('the end of the run', DEADLINE_MS, async () => (await stack.client.run(id))?.status === 'CANCELLED');
  }
}

/** @param {number} value */
const rounded = (value) => Number(value.toFixed(3));

/**
 * @param {readonly Awaited<ReturnType<typeof measured>>[]} figures
 * @param {readonly number[]} gradients processor time of one gradient
 * @param {number} workers
 */
function rowOf(figures, gradients, workers) {
  /** @param {keyof Roles} role */
  const ofRound = (role) => median(figures.map(({ spent, rounds }) => spent[role] / rounds));
  /** @param {keyof Roles} role */
  const ofSecond = (role) => rounded(median(figures.map(({ spent, seconds }) => spent[role] / seconds)));
  const gradientMs = median(gradients);
  const all = figures.map(({ spent, rounds }) => Object.values(spent).reduce((sum, ms) => sum + ms, 0) / rounds);
  return {
    roundsPerSecond: rounded(median(figures.map(({ rounds, seconds }) => rounds / seconds))),
    cpuMsServer: rounded(ofRound('server')),
    cpuMsWorkerMain: rounded(ofRound('workerMain') / workers),
    cpuMsWorkerCompute: rounded(ofRound('workerCompute') / workers),
    cpuMsWorkerOthers: rounded(ofRound('workerOthers') / workers),
    cpuMsApi: rounded(ofRound('api')),
    cpuMsPostgres: rounded(ofRound('postgres')),
    cpuMsRedis: rounded(ofRound('redis')),
    cpuMsGradient: rounded(gradientMs),
    cpuMsBeside: rounded(median(all) - workers * gradientMs),
    apiMsPerSecond: ofSecond('api'),
    postgresMsPerSecond: ofSecond('postgres'),
    redisMsPerSecond: ofSecond('redis'),
  };
}

/**
 * The bars that a row misses. A figure that is not a number misses its bar.
 * @param {{ pace: string, cpuMsApi: number, cpuMsBeside: number, timesSlow?: number | null }} row
 */
export function missedBy({ pace, ...row }) {
  /** @type {readonly (keyof typeof BARS)[]} */
  const judged = [...(pace === 'free' ? /** @type {const} */ (['cpuMsApi', 'cpuMsBeside']) : []), 'timesSlow'];
  const missed = judged.filter((name) => row[name] !== undefined && row[name] !== null && !(row[name] <= BARS[name]));
  return missed.map((name) => `${name} ${BARS[name]}`).join(', ');
}

/**
 * What a second with quick rounds costs the control plane, over one with slow rounds; null where the quick rounds were too few to tell.
 * @param {{ roundsPerSecond: number, apiMsPerSecond: number, postgresMsPerSecond: number }} quick
 * @param {{ apiMsPerSecond: number, postgresMsPerSecond: number }} slow
 */
export function timesSlowOf(quick, slow) {
  if (!(quick.roundsPerSecond >= LEAST_QUICK_ROUNDS)) return null;
  return rounded((quick.apiMsPerSecond + quick.postgresMsPerSecond) / (slow.apiMsPerSecond + slow.postgresMsPerSecond));
}

/** @param {{ servers: number, workers: number, batch: number, seconds: number, repetitions: number, transport: 'auto' | 'unix' | 'tcp', paces: string }} options */
export async function stackRows({ servers, workers, batch, seconds, repetitions, transport, paces }) {
  const wanted = paces.split(',');
  for (const name of wanted)
    if (!PACES.some(({ pace }) => pace === name))
      throw new Error(`--paces takes ${PACES.map(({ pace }) => pace).join(', ')}, not "${name}"`);
  const runs = PACES.filter(({ pace }) => wanted.includes(pace)).map(({ pace, link, batch: own }) => ({
    pace,
    link,
    batch: Math.min(own ?? batch, batch),
  }));
  /** @type {Map<number, () => { cpuMs: number }>} */
  const engines = new Map();
  for (const { batch: count } of runs) engines.set(count, engines.get(count) ?? (await engineAlone({ model: 'mlp' }, count)));
  const figures = runs.map(() => /** @type {{ figure: Awaited<ReturnType<typeof measured>>, gradientMs: number }[]} */ ([]));
  const stack = await Stack.start({ servers, workers, transport });
  try {
    for (let i = 0; i < repetitions; i++) {
      for (const [r, run] of runs.entries()) {
        const figure = await measured(stack, { ...run, seconds });
        figures[r]?.push({ figure, gradientMs: engines.get(run.batch)?.().cpuMs ?? Number.NaN });
        process.stderr.write(`mlp with the stack, ${run.pace}: ${rounded(figure.rounds / figure.seconds)} rounds/s\n`);
      }
    }
  } finally {
    await stack.stop();
  }
  const rows = runs.map(({ pace, batch: own }, r) => {
    const found = figures[r] ?? [];
    const row = rowOf(
      found.map(({ figure }) => figure),
      found.map(({ gradientMs }) => gradientMs),
      workers,
    );
    return { what: `the whole stack, ${pace}`, pace, workers, servers, batchPerWorker: own, repetitions, ...row };
  });
  const slow = rows.find(({ pace }) => pace === 'slow');
  return rows.map((row) => {
    const whole = row.pace === 'quick' && slow ? { ...row, timesSlow: timesSlowOf(row, slow) } : row;
    if ('timesSlow' in whole && whole.timesSlow === null)
      process.stderr.write(
        `timesSlow is not judged: quick runs reached ${row.roundsPerSecond} rounds/s, and ${LEAST_QUICK_ROUNDS} are wanted: run it on an idle machine\n`,
      );
    const missed = missedBy(whole);
    return { ...whole, missed, holds: missed === '' };
  });
}
