/**
 * `strategy: auto`: which strategy a run is worth, among those that end with equal bits. Pure functions of the spec, of who is there, and of what the first
 * rounds have measured.
 *
 *   only one can serve the run  ── at its creation ──> that one
 *   otherwise                   ── rounds over parameter servers are measured ──> the one with the shortest round
 *
 * A round is its step, the latency, and the transfer, which goes with the bytes on the busiest link of a round:
 *
 *   parameter-server        a worker sends its gradients and gets the parameters; a server does so for all workers, with its share of the vector
 *   multi-worker-mirrored   n workers send and get (n − 1)/n of that, as each holds a share itself
 *
 * With `codec: auto` too, the codec is picked before, and the rounds that are measured have it.
 */
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
  readonly why: string;
}

/** Another strategy has to save so much of a round, and so many milliseconds: a switch costs the rounds that were measured. */
const LEAST_SHARE = 0.15;
const LEAST_MS = 3;
/** On one core a worker that holds a shard computes and updates in turns: it has to save more. */
const LEAST_SHARE_ONE_CORE = 0.3;
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
function fitting(spec: RunSpec, strategy: object): StrategySpec | string {
  const result = parseStoredSpec(Object.assign({}, spec, { strategy }));
  return result.ok ? result.spec.strategy : result.issues.map(({ path, message }) => `${path} ${message}`).join('; ');
}

/** What is picked without a measurement; undefined where both strategies can serve the run. */
export function onlyStrategy(spec: RunSpec, fleet: PresentFleet): PickedStrategy | undefined {
  const { strategy: asked, replicas } = spec;
  if (asked.kind !== 'auto') return undefined;
  const servers = fitting(spec, byServers(asked));
  const workers = fitting(spec, byWorkers(asked, Math.min(replicas, Math.max(asked.startWorkers ?? 0, fleet.shardWorkers, 1))));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  if (typeof workers === 'string') return { strategy: servers, why: `no other strategy serves this spec: ${workers}` };
  if (fleet.liveServers === 0 && fleet.shardWorkers > 0)
    return { strategy: workers, why: `no parameter server is connected, and ${counted(fleet.shardWorkers)} can hold the parameters` };
  // Where no worker is there at all, those to come may hold parameters.
  if (fleet.shardWorkers === 0 && fleet.liveWorkers > 0 && fleet.liveServers > 0)
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
  const { strategy: asked, replicas } = spec;
  if (asked.kind !== 'auto') throw new Error(`the strategy is ${asked.kind} already`);
  const servers = fitting(spec, byServers(asked));
  if (typeof servers === 'string') throw new Error(`a spec of strategy auto is none of parameter-server: ${servers}`);
  const { stepMs, waitMs, latencyMs, denseBytes, nodes, workers: n, cores } = measured;
  const transferMs = Math.max(0, waitMs - latencyMs);
  const codec = codecOf(spec, measured);
  const ofWorker = (denseBytes * (nodes * encodedBits(codec) + sentParameterBits(codec))) / 32;
  const ofServer = (n * ofWorker) / measured.servers;
  const busiest = Math.max(ofWorker, ofServer);
  const ofMember = (ofWorker * (n - 1)) / n;
  const bytesPerSecond = transferMs > 0 ? (busiest / transferMs) * 1000 : 0;
  const roundMs = stepMs + waitMs;
  const expectedMs = stepMs + Math.min(waitMs, latencyMs) + (transferMs * ofMember) / busiest;
  const rate = bytesPerSecond > 0 ? `, which is ${megabytes(bytesPerSecond)}/s` : '';
  const encoded = measured.codec ? `, gradients in ${codec.kind} and parameters in ${codec.parameters}, as codec auto has picked` : '';
  const numbers =
    `with parameter-server a round takes ${milliseconds(roundMs)}: ${milliseconds(stepMs)} step, ${milliseconds(waitMs)} exchange of ` +
    `${isBound(codec) ? 'at most ' : ''}${megabytes(busiest)} on the busiest link of ${counted(n)} and ${counted(measured.servers, 'server')} with ${milliseconds(latencyMs)} latency${rate}${encoded}; ` +
    `with multi-worker-mirrored ${milliseconds(expectedMs)} are expected, for ${megabytes(ofMember)}; ${counted(cores, 'core')} for each worker`;
  const stays = (why: string): PickedStrategy => ({ strategy: servers, why: `${numbers}: ${why}` });
  const workers = fitting(spec, byWorkers(asked, Math.min(replicas, n)));
  if (typeof workers === 'string') return stays(workers);
  const refusal = refuses?.(Object.assign({}, spec, { strategy: workers }));
  if (refusal !== undefined) return stays(refusal);
  if (shardWorkers < n) return stays(`${counted(shardWorkers)} of ${n} can hold parameters`);
  if (transferMs === 0 || bytesPerSecond > FAST_BYTES_PER_SECOND)
    return stays('the wait is work of the processes, which the links do not bound');
  const savedMs = roundMs - expectedMs;
  const share = cores > 1 ? LEAST_SHARE : LEAST_SHARE_ONE_CORE;
  if (savedMs < Math.max(LEAST_MS, share * roundMs)) return stays(`that saves less than ${share * 100} % and ${LEAST_MS} ms`);
  return { strategy: workers, why: `${numbers}: that saves ${Math.round((100 * savedMs) / roundMs)} %` };
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
