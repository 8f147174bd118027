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
 * With `codec: auto` too, the codec is picked before, and the rounds that are measured have it. Local updates have a codec of their own: they may be picked
 * by the rounds before.
 */
import { allowedLocalUpdates, withLocalRounds, type AllowedLocalUpdates } from './auto-local-updates.js';
import { encodedBits, picksCodec, sentParameterBits, type CodecSpec } from './codec-spec.js';
import { parseStoredSpec, type RunSpec } from './run-spec.js';
import type { StrategySpec } from './strategy.js';

type AutoStrategy = Extract<StrategySpec, { kind: 'auto' }>;

/** The servers and workers that are connected. */
export interface PresentFleet {
  readonly liveServers: number;
  /** Workers of any kind. */
  readonly liveWorkers: number;
  /** Workers that take shards. */
  readonly shardWorkers: number;
}

/** What the first rounds have measured: the slowest step, and the shortest wait for the next parameters, which is that of the worker that was waited for. */
export interface MeasuredExchange {
  readonly stepMs: number;
  readonly waitMs: number;
  readonly latencyMs: number;
  /** Parameters and state as float32. */
  readonly denseBytes: number;
  /** Vectors that a worker sends in a round, at most. */
  readonly nodes: number;
  /** Workers that compute. */
  readonly workers: number;
  readonly servers: number;
  /** Of each worker's machine, at least. */
  readonly cores: number;
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

const byServers = ({ servers, accumulate, standby, startWorkers }: AutoStrategy): object => ({
  kind: 'parameter-server',
  servers,
  accumulate,
  standby,
  ...(startWorkers === undefined ? {} : { startWorkers }),
});
const byWorkers = ({ accumulate, standby }: AutoStrategy, workers: number): object => ({
  kind: 'multi-worker-mirrored',
  workers,
  accumulate,
  standby,
});

/** The strategy as the run would have it, or why it cannot. */
const fitting = (spec: RunSpec, strategy: object): StrategySpec | string => strategyOf(Object.assign({}, spec, { strategy }));

function strategyOf(spec: object): StrategySpec | string {
  const result = parseStoredSpec(spec);
  return result.ok ? result.spec.strategy : result.issues.map(({ path, message }) => `${path} ${message}`).join('; ');
}

/** What is picked without a measurement; undefined where both strategies can serve the run. */
export function onlyStrategy(spec: RunSpec, fleet: PresentFleet): PickedStrategy | undefined {
  const { strategy: asked, replicas } = spec;
  if (asked.kind !== 'auto') return undefined;
  const servers = fitting(spec, byServers(asked));
  const workers = fitting(spec, byWorkers(asked, Math.min(replicas, Math.max(asked.startWorkers ?? 0, fleet.shardWorkers, 1))));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  const allowed = allowedLocalUpdates(spec);
  if (typeof workers === 'string' && !allowed) return { strategy: servers, why: `no other strategy serves this spec: ${workers}` };
  if (fleet.liveServers === 0 && fleet.shardWorkers > 0 && typeof workers !== 'string')
    return { strategy: workers, why: `no parameter server is connected, and ${counted(fleet.shardWorkers)} can hold the parameters` };
  // Where no worker is there at all, those to come may hold parameters.
  if (fleet.shardWorkers === 0 && fleet.liveWorkers > 0 && fleet.liveServers > 0 && !allowed)
    return { strategy: servers, why: 'no worker is connected that can hold parameters, and parameter servers are' };
  return undefined;
}

/**
 * @param shardWorkers workers that are there and take shards
 * @param refuses why a spec with another strategy would not do, where more is known of the run than its spec
 */
export function pickStrategy(
  spec: RunSpec,
  measured: MeasuredExchange,
  shardWorkers: number,
  refuses?: (other: RunSpec) => string | undefined,
): PickedStrategy {
  const { strategy: asked } = spec;
  if (asked.kind !== 'auto') throw new Error(`the strategy is ${asked.kind} already`);
  const servers = fitting(spec, byServers(asked));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  const picking: Picking = { measured, expected: expectedOf(spec, measured), shardWorkers, refuses };
  const members = byWorkers(asked, Math.min(spec.replicas, measured.workers));
  return withLocalUpdates(spec, exactStrategy(spec, servers, members, picking), picking);
}

interface Picking {
  readonly measured: MeasuredExchange;
  readonly expected: Expected;
  readonly shardWorkers: number;
  readonly refuses: ((other: RunSpec) => string | undefined) | undefined;
}

/** What a round takes with each strategy, by what was measured with parameter servers. */
interface Expected {
  readonly transferMs: number;
  /** On the busiest link. */
  readonly bytes: number;
  readonly serversMs: number;
  readonly workersMs: number;
  readonly bytesPerSecond: number;
  readonly cores: number;
  readonly numbers: string;
}

function expectedOf(spec: RunSpec, measured: MeasuredExchange): Expected {
  const { stepMs, waitMs, latencyMs, nodes, workers: n, servers, cores } = measured;
  const transferMs = Math.max(0, waitMs - latencyMs);
  const codec = codecOf(spec, measured);
  const ofWorker = bytesOfWorker(codec, nodes, measured);
  const bytes = busiest(ofWorker, measured);
  const ofMember = (ofWorker * (n - 1)) / n;
  const bytesPerSecond = transferMs > 0 ? (bytes / transferMs) * 1000 : 0;
  const serversMs = stepMs + waitMs;
  const workersMs = stepMs + Math.min(waitMs, latencyMs) + (transferMs * ofMember) / bytes;
  const rate = bytesPerSecond > 0 ? `, which is ${megabytes(bytesPerSecond)}/s` : '';
  const encoded = measured.codec ? `, gradients in ${codec.kind} and parameters in ${codec.parameters}, as codec auto has picked` : '';
  const numbers =
    `with parameter-server a round takes ${milliseconds(serversMs)}: ${milliseconds(stepMs)} step, ${milliseconds(waitMs)} exchange of ` +
    `${isBound(codec) ? 'at most ' : ''}${megabytes(bytes)} on the busiest link of ${counted(n)} and ${counted(servers, 'server')} with ${milliseconds(latencyMs)} latency${rate}${encoded}; ` +
    `with multi-worker-mirrored ${milliseconds(workersMs)} are expected, for ${megabytes(ofMember)}; ${counted(cores, 'core')} for each worker`;
  return { transferMs, bytes, serversMs, workersMs, bytesPerSecond, cores, numbers };
}

/** Both ways, in a round of a worker that sends so many vectors. */
const bytesOfWorker = (codec: CodecSpec, nodes: number, { denseBytes }: MeasuredExchange): number =>
  (denseBytes * (nodes * encodedBits(codec) + sentParameterBits(codec))) / 32;
/** A server has the vectors of all workers, for its share of the parameters. */
const busiest = (ofWorker: number, { workers, servers }: MeasuredExchange): number => Math.max(ofWorker, (workers * ofWorker) / servers);

/** Links that bound the exchange: otherwise it is work of processes, which no strategy saves. */
const isSlow = ({ transferMs, bytesPerSecond }: Expected): boolean => transferMs > 0 && bytesPerSecond <= FAST_BYTES_PER_SECOND;

/** What is picked of the strategies with equal bits. */
function exactStrategy(
  spec: RunSpec,
  servers: StrategySpec,
  members: object,
  { measured, expected, shardWorkers, refuses }: Picking,
): PickedStrategy {
  const { serversMs, workersMs, cores, numbers } = expected;
  const stays = (why: string): PickedStrategy => ({ strategy: servers, why: `${numbers}: ${why}` });
  const workers = fitting(spec, members);
  if (typeof workers === 'string') return stays(workers);
  const refusal = refuses?.(Object.assign({}, spec, { strategy: workers }));
  if (refusal !== undefined) return stays(refusal);
  if (shardWorkers < measured.workers) return stays(`${counted(shardWorkers)} of ${measured.workers} can hold parameters`);
  if (!isSlow(expected)) return stays('the wait is work of the processes, which the links do not bound');
  const savedMs = serversMs - workersMs;
  const share = cores > 1 ? LEAST_SHARE : LEAST_SHARE_ONE_CORE;
  if (savedMs < Math.max(LEAST_MS, share * serversMs)) return stays(`that saves less than ${share * 100} % and ${LEAST_MS} ms`);
  return { strategy: workers, why: `${numbers}: that saves ${Math.round((100 * savedMs) / serversMs)} %` };
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
  const { stepMs, waitMs, latencyMs, workers: n } = measured;
  const { codec } = allowed;
  const { localSteps } = allowed.strategy;
  const sent: CodecSpec = codec ?? { kind: 'none', errorFeedback: false };
  // Every replica that is encoded is a vector of its own.
  const nodes = sent.kind === 'none' ? measured.nodes : Math.ceil(spec.replicas / n);
  const bytes = busiest(bytesOfWorker(sent, nodes, measured), measured);
  const exchangeMs = Math.min(waitMs, latencyMs) + (expected.transferMs * bytes) / expected.bytes;
  const stepsMs = stepMs + exchangeMs / localSteps;
  const numbers = `local updates: ${milliseconds(stepsMs)} are expected for a step, with an exchange of ${isBound(sent) ? 'at most ' : ''}${megabytes(bytes)} every ${localSteps} steps`;
  const local = withLocalRounds(spec, allowed);
  const fits = strategyOf(local);
  return { allowed, stepsMs, numbers, refusal: typeof fits === 'string' ? fits : refuses?.(local) };
}

/** Local updates, where the spec allows them and they save enough of a step; otherwise what was picked without them. */
function withLocalUpdates(spec: RunSpec, exact: PickedStrategy, picking: Picking): PickedStrategy {
  const { expected } = picking;
  const local = localUpdatesOf(spec, picking);
  if (!local) return exact;
  const { allowed, stepsMs, numbers, refusal } = local;
  const exactMs = exact.strategy.kind === 'parameter-server' ? expected.serversMs : expected.workersMs;
  const stays = (why: string): PickedStrategy => ({ ...exact, why: `${exact.why}; ${numbers}: ${why}` });
  if (stepsMs > LOCAL_SHARE * exactMs) return stays(`that saves less than ${SAVED_PERCENT} %, and they change what is trained`);
  if (refusal !== undefined) return stays(refusal);
  return { ...allowed, why: `${expected.numbers}; ${numbers}: that saves ${Math.round(100 * (1 - stepsMs / exactMs))} %` };
}

/**
 * With `codec: auto`, by rounds before it has picked: local updates, where they save enough beside the smallest codec that it might pick, with either of the
 * other strategies. They have a codec of their own, so it need not be waited for. Undefined where that is not certain yet.
 */
export function pickLocalUpdates(
  spec: RunSpec,
  measured: MeasuredExchange,
  refuses?: (other: RunSpec) => string | undefined,
): PickedStrategy | undefined {
  const expected = expectedOf(spec, measured);
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
