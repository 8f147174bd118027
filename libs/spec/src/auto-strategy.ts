/**
 * `strategy: auto`: which strategy a run is worth, among those that end with equal bits, and local updates where the spec allows them. Pure functions of the
 * spec, of who is there, and of what the first rounds have measured.
 *
 *   only one can serve the run  ── at its creation ──> that one
 *   otherwise                   ── rounds over parameter servers are measured ──> the one with the shortest round
 *
 * A round is its step, the latency, and the transfer, which goes with the bytes on the busiest link of a round:
 *
 *   parameter-server        a worker sends its gradients and gets the parameters; a server does so for all workers, with its share of the vector
 *   multi-worker-mirrored   n workers send and get (n − 1)/n of that, as each holds a share itself
 *   local-update            as parameter-server, with its own codec, once in `localSteps` steps
 *
 * Workers with cores for it compute in several threads, where that shortens the step (auto-threads.ts): hybrid is parameter-server with threads, and mirrored is one
 * worker that holds the run with threads. Threads change no bit, so each strategy is compared with as many of them as pay there.
 *
 * With `codec: auto` too, the codec is picked before, and the rounds that are measured have it. Local updates have a codec of their own: they may be picked
 * by the rounds before.
 */
import { allowedLocalUpdates, withLocalRounds, type AllowedLocalUpdates } from './auto-local-updates.js';
import { coresOf, threadedSteps, type MeasuredWorkers } from './auto-threads.js';
import { encodedBits, picksCodec, sentParameterBits, type CodecSpec } from './codec-spec.js';
import type { SpecIssue } from './plain-issues.js';
import { parseStoredSpec, type RunSpec } from './run-spec.js';
import { shardHosts } from './shard-holders.js';
import type { StrategySpec } from './strategy.js';

type AutoStrategy = Extract<StrategySpec, { kind: 'auto' }>;

/** The servers and workers that are connected. */
export interface PresentFleet {
  readonly liveServers: number;
  /** Workers of any kind. */
  readonly liveWorkers: number;
  /** Workers that take shards. */
  readonly shardWorkers: number;
  /** Why the run would not do with several compute threads in a worker, where more is known than its spec. */
  readonly refuses?: Refuses | undefined;
}

/** Why a spec with another strategy would not do, where more is known of the run than its spec. */
type Refuses = (other: RunSpec) => string | undefined;

/** What the first rounds have measured: the slowest step, and the shortest wait for the next parameters, which is that of the worker that was waited for. */
export interface MeasuredExchange extends MeasuredWorkers {
  readonly waitMs: number;
  readonly latencyMs: number;
  /** Parameters and state as float32. */
  readonly denseBytes: number;
  /** Vectors that a worker sends in a round, at most. */
  readonly nodes: number;
  readonly servers: number;
  /** What `codec: auto` had picked, of these rounds. */
  readonly codec?: { readonly kind: string; readonly parameters: string } | undefined;
}

export interface PickedStrategy {
  /** With every default filled in. */
  readonly strategy: StrategySpec;
  /** In place of that of the spec, where local updates are picked and the spec left its codec to be picked too. */
  readonly codec?: CodecSpec | undefined;
  readonly why: string;
}

/** Another strategy has to save so much of a round, and so many milliseconds: a switch costs the rounds that were measured. */
const LEAST_SHARE = 0.15;
const LEAST_MS = 3;
/** On one core a worker that holds a shard computes and updates in turns: it has to save more. */
const LEAST_SHARE_ONE_CORE = 0.3;
/** Local updates change what is trained and may need more steps, so a step has to take this share of its time with the others at most. */
const LOCAL_SHARE = 0.7;
const SAVED_PERCENT = Math.round(100 * (1 - LOCAL_SHARE));
/** The fewest bytes that `codec: auto` may pick. */
const SMALLEST: CodecSpec = { kind: 'int4', parameters: 'int8', errorFeedback: false };
/** From here on the wait is work of processes, as on Unix sockets, which a strategy moves and does not save. A gigabit each way is 250 MB/s at most. */
const FAST_BYTES_PER_SECOND = 260e6;

/** Whether the strategy of the run is still to be picked. */
export const picksStrategy = ({ strategy }: { readonly strategy: { readonly kind: string } }): boolean => strategy.kind === 'auto';

const byServers = ({ servers, accumulate, standby, startWorkers }: AutoStrategy, threads?: number): object => ({
  ...(threads === undefined ? { kind: 'parameter-server' } : { kind: 'hybrid', threads }),
  servers,
  accumulate,
  standby,
  ...(startWorkers === undefined ? {} : { startWorkers }),
});
const byWorkers = ({ accumulate, standby }: AutoStrategy, workers: number, threads?: number): object => ({
  ...(workers === 1 && threads !== undefined ? { kind: 'mirrored' } : { kind: 'multi-worker-mirrored', workers }),
  ...(threads === undefined ? {} : { threads }),
  accumulate,
  standby,
});

/** The strategy as the run would have it, or why it cannot. */
const fitting = (spec: RunSpec, strategy: object): StrategySpec | string => strategyOf(Object.assign({}, spec, { strategy }));

function strategyOf(spec: object): StrategySpec | string {
  const result = parseStoredSpec(spec);
  return result.ok ? result.spec.strategy : inWords(result.issues);
}

const inWords = (issues: readonly SpecIssue[]): string => issues.map(({ path, message }) => `${path} ${message}`).join('; ');

/** What is picked without a measurement; undefined where both strategies can serve the run. */
export function onlyStrategy(spec: RunSpec, fleet: PresentFleet): PickedStrategy | undefined {
  const { strategy: asked, replicas } = spec;
  if (asked.kind !== 'auto') return undefined;
  const servers = fitting(spec, byServers(asked));
  const workers = fitting(spec, byWorkers(asked, Math.min(replicas, Math.max(asked.startWorkers ?? 0, fleet.shardWorkers, 1))));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  const allowed = allowedLocalUpdates(spec);
  if (typeof workers === 'string' && !allowed) return { strategy: servers, why: `no other strategy serves this spec: ${workers}` };
  if (fleet.liveServers === 0 && fleet.shardWorkers > 0 && typeof workers !== 'string') {
    const why = `no parameter server is connected, and ${counted(fleet.shardWorkers)} can hold the parameters`;
    const alone = fleet.liveWorkers === 1 && replicas > 1 ? aloneInThreads(spec, asked, fleet.refuses) : undefined;
    return alone ? { strategy: alone, why: `${why}: it computes in a thread for each core` } : { strategy: workers, why };
  }
  // Where no worker is there at all, those to come may hold parameters.
  if (fleet.shardWorkers === 0 && fleet.liveWorkers > 0 && fleet.liveServers > 0 && !allowed)
    return { strategy: servers, why: 'no worker is connected that can hold parameters, and parameter servers are' };
  return undefined;
}

/** One worker that holds the run, with as many threads as it turns out to have cores; undefined where the run cannot have them. */
function aloneInThreads(spec: RunSpec, { accumulate, standby }: AutoStrategy, refuses: Refuses | undefined): StrategySpec | undefined {
  const alone = fitting(spec, { kind: 'mirrored', accumulate, standby });
  return typeof alone === 'string' || refuses?.(Object.assign({}, spec, { strategy: alone })) !== undefined ? undefined : alone;
}

/**
 * @param shardWorkers workers that are there and take shards
 * @param refuses why a spec with another strategy would not do, where more is known of the run than its spec
 */
export function pickStrategy(spec: RunSpec, measured: MeasuredExchange, shardWorkers: number, refuses?: Refuses): PickedStrategy {
  const { strategy: asked } = spec;
  if (asked.kind !== 'auto') throw new Error(`the strategy is ${asked.kind} already`);
  const servers = fitting(spec, byServers(asked));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  const members = Math.min(spec.replicas, measured.workers);
  const workers = fitting(spec, byWorkers(asked, members));
  const exchange = exchangeOf(spec, measured);
  const specWith = (strategy: object): object => Object.assign({}, spec, { strategy });
  const known = { measured, refuses, replicas: spec.replicas };
  // Beside another strategy, which costs an attempt in any case, they may save less.
  const plans: Plans = {
    servers: inThreads(
      servers,
      (threads) => specWith(byServers(asked, threads)),
      Math.max(LEAST_MS, LEAST_SHARE * (measured.stepMs + measured.waitMs)),
      known,
    ),
    workers:
      typeof workers === 'string'
        ? workers
        : inThreads(workers, (threads) => specWith(byWorkers(asked, members, threads)), LEAST_MS, known),
  };
  const picking: Picking = { measured, expected: expectedOf(measured, exchange, plans), shardWorkers, refuses };
  return withLocalUpdates(spec, exactStrategy(spec, plans, picking), picking);
}

/** A strategy with the compute threads that pay with it. */
interface Planned {
  readonly strategy: StrategySpec;
  readonly stepMs: number;
  /** Undefined where each worker computes in one. */
  readonly threads?: number;
  /** Why the run cannot have the threads that would pay. */
  readonly refusal?: string | undefined;
}

interface Plans {
  readonly servers: Planned;
  /** Or why the run cannot have it. */
  readonly workers: Planned | string;
}

/**
 * @param threaded the spec with so many threads in each worker
 * @param leastMs that threads have to save
 */
function inThreads(
  plain: StrategySpec,
  threaded: (threads: number) => object,
  leastMs: number,
  { measured, refuses, replicas }: Pick<Picking, 'measured' | 'refuses'> & { readonly replicas: number },
): Planned {
  const { stepMs: measuredMs } = measured;
  let refusal: string | undefined;
  for (const { threads, stepMs } of threadedSteps(replicas, measured)) {
    if (measuredMs - stepMs < leastMs) break;
    const spec = parseStoredSpec(threaded(threads));
    const refused = spec.ok ? refuses?.(spec.spec) : inWords(spec.issues);
    if (spec.ok && refused === undefined) return { strategy: spec.spec.strategy, stepMs, threads };
    refusal ??= refused;
  }
  return { strategy: plain, stepMs: measuredMs, refusal };
}

interface Picking {
  readonly measured: MeasuredExchange;
  readonly expected: Expected;
  readonly shardWorkers: number;
  readonly refuses: Refuses | undefined;
}

/** The exchange of a round with each strategy, by what was measured with parameter servers. */
interface ExpectedExchange {
  readonly transferMs: number;
  /** On the busiest link. */
  readonly bytes: number;
  readonly workersWaitMs: number;
  readonly bytesPerSecond: number;
  readonly codec: CodecSpec;
  /** Of a worker that holds a shard. */
  readonly ofMember: number;
}

/** What a round takes with each strategy. */
interface Expected extends ExpectedExchange {
  /** With one thread in each worker, as it was measured. */
  readonly measuredMs: number;
  /** With the threads that pay. */
  readonly serversMs: number;
  readonly workersMs: number;
  readonly numbers: string;
}

function exchangeOf(spec: RunSpec, measured: MeasuredExchange): ExpectedExchange {
  const { waitMs, latencyMs, nodes, workers: n } = measured;
  const transferMs = Math.max(0, waitMs - latencyMs);
  const codec = codecOf(spec, measured);
  const ofWorker = bytesOfWorker(codec, nodes, measured);
  const bytes = busiest(ofWorker, measured);
  const ofMember = (ofWorker * (n - 1)) / n;
  const bytesPerSecond = transferMs > 0 ? (bytes / transferMs) * 1000 : 0;
  const workersWaitMs = Math.min(waitMs, latencyMs) + (transferMs * ofMember) / bytes;
  return { transferMs, bytes, workersWaitMs, bytesPerSecond, codec, ofMember };
}

function expectedOf(measured: MeasuredExchange, exchange: ExpectedExchange, { servers: planned, workers: members }: Plans): Expected {
  const { stepMs, waitMs, latencyMs, workers: n, servers, cores, workersOnMachine = 1 } = measured;
  const { bytes, bytesPerSecond, codec, ofMember } = exchange;
  const measuredMs = stepMs + waitMs;
  const serversMs = planned.stepMs + waitMs;
  const workersMs = (typeof members === 'string' ? stepMs : members.stepMs) + exchange.workersWaitMs;
  const rate = bytesPerSecond > 0 ? `, which is ${megabytes(bytesPerSecond)}/s` : '';
  const encoded = measured.codec ? `, gradients in ${codec.kind} and parameters in ${codec.parameters}, as codec auto has picked` : '';
  const inThreads = ({ threads }: Partial<Planned> = {}): string =>
    threads === undefined ? '' : `, in ${threads} compute threads of each worker`;
  const byMembers = typeof members === 'string' ? undefined : members;
  const numbers =
    `with parameter-server a round takes ${milliseconds(measuredMs)}: ${milliseconds(stepMs)} step, ${milliseconds(waitMs)} exchange of ` +
    `${isBound(codec) ? 'at most ' : ''}${megabytes(bytes)} on the busiest link of ${counted(n)} and ${counted(servers, 'server')} with ${milliseconds(latencyMs)} latency${rate}${encoded}; ` +
    (planned.threads === undefined ? '' : `with hybrid ${milliseconds(serversMs)} are expected${inThreads(planned)}; `) +
    `with ${byMembers?.strategy.kind ?? 'multi-worker-mirrored'} ${milliseconds(workersMs)} are expected, for ${megabytes(ofMember)}${inThreads(byMembers)}; ` +
    `${counted(cores, 'core')} for ${workersOnMachine > 1 ? `${workersOnMachine} workers of one machine` : 'each worker'}` +
    (planned.refusal === undefined ? '' : `; in one compute thread of each worker, since with more: ${planned.refusal}`);
  return { ...exchange, measuredMs, serversMs, workersMs, numbers };
}

/** Both ways, in a round of a worker that sends so many vectors. */
const bytesOfWorker = (codec: CodecSpec, nodes: number, { denseBytes }: MeasuredExchange): number =>
  (denseBytes * (nodes * encodedBits(codec) + sentParameterBits(codec))) / 32;
/** A server has the vectors of all workers, for its share of the parameters. */
const busiest = (ofWorker: number, { workers, servers }: MeasuredExchange): number => Math.max(ofWorker, (workers * ofWorker) / servers);

/** Links that bound the exchange: otherwise it is work of processes, which no strategy saves. */
const isSlow = ({ transferMs, bytesPerSecond }: Expected): boolean => transferMs > 0 && bytesPerSecond <= FAST_BYTES_PER_SECOND;

/** What is picked of the strategies with equal bits. */
function exactStrategy(spec: RunSpec, { servers, workers }: Plans, { measured, expected, shardWorkers, refuses }: Picking): PickedStrategy {
  const { measuredMs, serversMs, workersMs, numbers } = expected;
  const saved = (ms: number): string => `saves ${Math.round((100 * (measuredMs - ms)) / measuredMs)} %`;
  const stays = (why: string): PickedStrategy => ({
    strategy: servers.strategy,
    why: `${numbers}: ${servers.threads === undefined ? '' : `hybrid ${saved(serversMs)}; `}${why}`,
  });
  if (typeof workers === 'string') return stays(workers);
  const refusal = refuses?.(Object.assign({}, spec, { strategy: workers.strategy }));
  if (refusal !== undefined) return stays(refusal);
  if (shardWorkers < measured.workers) return stays(`${counted(shardWorkers)} of ${measured.workers} can hold parameters`);
  if (!isSlow(expected)) return stays('the wait is work of the processes, which the links do not bound');
  const share = coresOf(measured) > 1 ? LEAST_SHARE : LEAST_SHARE_ONE_CORE;
  if (serversMs - workersMs < Math.max(LEAST_MS, share * serversMs))
    return stays(`${servers.threads === undefined ? 'that' : workers.strategy.kind} saves less than ${share * 100} % and ${LEAST_MS} ms`);
  return { strategy: workers.strategy, why: `${numbers}: that ${saved(workersMs)}` };
}

/** What a step takes with the local updates that the spec allows. */
interface ExpectedLocal {
  readonly allowed: AllowedLocalUpdates;
  readonly stepsMs: number;
  readonly numbers: string;
  /** Why the run cannot have them. */
  readonly refusal: string | undefined;
}

/** Undefined where none are allowed, or links do not bound the exchange. */
function localUpdatesOf(spec: RunSpec, { measured, expected, refuses }: Omit<Picking, 'shardWorkers'>): ExpectedLocal | undefined {
  const allowed = allowedLocalUpdates(spec);
  if (!allowed || !isSlow(expected)) return undefined;
  const { waitMs, latencyMs, workers: n } = measured;
  const { codec } = allowed;
  const { localSteps } = allowed.strategy;
  const sent: CodecSpec = codec ?? { kind: 'none', errorFeedback: false };
  // Every replica that is encoded is a vector of its own.
  const nodes = sent.kind === 'none' ? measured.nodes : Math.ceil(spec.replicas / n);
  const bytes = busiest(bytesOfWorker(sent, nodes, measured), measured);
  const exchangeMs = Math.min(waitMs, latencyMs) + (expected.transferMs * bytes) / expected.bytes;
  const local = withLocalRounds(spec, allowed);
  const fits = strategyOf(local);
  const inSeveral = (threads: number): object => Object.assign({}, local, { strategy: { ...allowed.strategy, threads } });
  const planned = inThreads(allowed.strategy, inSeveral, LEAST_MS, { measured, refuses, replicas: spec.replicas });
  const stepsMs = planned.stepMs + exchangeMs / localSteps;
  const each = planned.threads === undefined ? '' : ` in ${planned.threads} compute threads of each worker`;
  const numbers = `local updates: ${milliseconds(stepsMs)} are expected for a step${each}, with an exchange of ${isBound(sent) ? 'at most ' : ''}${megabytes(bytes)} every ${localSteps} steps`;
  const strategy = planned.threads === undefined ? allowed.strategy : { ...allowed.strategy, threads: planned.threads };
  return { allowed: { ...allowed, strategy }, stepsMs, numbers, refusal: typeof fits === 'string' ? fits : refuses?.(local) };
}

/** Local updates, where the spec allows them and they save enough of a step; otherwise what was picked without them. */
function withLocalUpdates(spec: RunSpec, exact: PickedStrategy, picking: Picking): PickedStrategy {
  const { expected } = picking;
  const local = localUpdatesOf(spec, picking);
  if (!local) return exact;
  const { allowed, stepsMs, numbers, refusal } = local;
  const exactMs = shardHosts(exact.strategy) === 'servers' ? expected.serversMs : expected.workersMs;
  const stays = (why: string): PickedStrategy => ({ ...exact, why: `${exact.why}; ${numbers}: ${why}` });
  if (stepsMs > LOCAL_SHARE * exactMs) return stays(`that saves less than ${SAVED_PERCENT} %, and they change what is trained`);
  if (refusal !== undefined) return stays(refusal);
  return { ...allowed, why: `${expected.numbers}; ${numbers}: that saves ${Math.round(100 * (1 - stepsMs / exactMs))} %` };
}

/**
 * With `codec: auto`, by rounds before it has picked: local updates, where they save enough beside the smallest codec that it might pick, with either of the
 * other strategies. They have a codec of their own, so it need not be waited for. Undefined where that is not certain yet.
 */
export function pickLocalUpdates(spec: RunSpec, measured: MeasuredExchange, refuses?: Refuses): PickedStrategy | undefined {
  if (spec.strategy.kind !== 'auto') return undefined;
  const servers = fitting(spec, byServers(spec.strategy));
  if (typeof servers === 'string') return undefined;
  // With a codec nobody has several threads.
  const plans: Plans = { servers: { strategy: servers, stepMs: measured.stepMs }, workers: 'they are not asked for' };
  const expected = expectedOf(measured, exchangeOf(spec, measured), plans);
  const local = localUpdatesOf(spec, { measured, expected, refuses });
  if (!local || local.refusal !== undefined) return undefined;
  const { stepMs, waitMs, latencyMs, workers: n } = measured;
  const bytes = bytesOfWorker(SMALLEST, Math.ceil(spec.replicas / n), measured);
  // The shortest exchange of the other strategies: that of workers which hold the shards, with the smallest codec.
  const exactMs = stepMs + Math.min(waitMs, latencyMs) + (expected.transferMs * bytes * (n - 1)) / n / expected.bytes;
  if (local.stepsMs > LOCAL_SHARE * exactMs) return undefined;
  const saved = Math.round(100 * (1 - local.stepsMs / exactMs));
  return {
    ...local.allowed,
    why: `${expected.numbers}; ${local.numbers}: that saves ${saved} % of the ${milliseconds(exactMs)} that the smallest codec and strategy would take`,
  };
}

/** How the measured rounds were encoded: as the spec says, unless it leaves that to be picked. */
function codecOf(spec: RunSpec, { codec: picked }: MeasuredExchange): CodecSpec {
  if (picked) return { ...(picked as Pick<CodecSpec, 'kind' | 'parameters'>), errorFeedback: false };
  return !spec.codec || picksCodec(spec) ? { kind: 'none', errorFeedback: false } : spec.codec;
}

/** How long a gradient becomes follows from its values: its bits are the most that it takes. */
const isBound = ({ kind }: CodecSpec): boolean => kind === 'top-k' || kind === 'threshold' || kind === 'dgc' || kind === 'power-sgd';

const counted = (number: number, noun = 'worker'): string => `${number} ${noun}${number === 1 ? '' : 's'}`;
const milliseconds = (value: number): string => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const megabytes = (value: number): string => `${(value / 1e6).toFixed(value < 1e7 ? 2 : 0)} MB`;
