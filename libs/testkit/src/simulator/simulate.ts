/**
 * One seed: a random shape, weather and fault plan, run to its end. Two modes:
 *   safety    faults at any time; whatever happens, no invariant breaks
 *   liveness  faults stop after a while; then the run must end within its deadline, else the seed fails and says what every
 *             machine waits for
 */
import { Cluster, type ClusterOptions, type Plant } from './cluster.js';
import type { Violation } from './checks/checks.js';
import { FAULT_KINDS, FAULTS, endFaults, scheduleFaults, type FaultKind, type FaultPlan } from './faults/faults.js';
import { STREAMING, randomGradient } from './run/gradient-shape.js';
import { Random } from './world/random.js';
import { randomRefinement, randomShape, randomValidation, type RunShape } from './run/tiny-run.js';
import { keepsOfReplicas, mirrored, randomCodec, widened, withLocalSteps, withPowerSgd, withTable } from './run/replica-shape.js';
import { randomAsync, type RunMode, type AsyncShape } from './run/async-run.js';

export type CheckMode = 'safety' | 'liveness';

export interface SeedOptions {
  readonly seed: number;
  readonly check?: CheckMode | undefined;
  /** Mode sync when it is not said. */
  readonly mode?: RunMode | undefined;
  /** In place of what the seed draws for modes async and ssp. */
  readonly items?: Partial<AsyncShape> | undefined;
  /** Instead of what the seed draws. */
  readonly shape?: Partial<RunShape> | undefined;
  readonly workers?: number | undefined;
  readonly apis?: number | undefined;
  readonly kinds?: readonly FaultKind[] | undefined;
  readonly stepMs?: readonly [number, number] | undefined;
  readonly plant?: Plant | undefined;
  /** Called when everything stands, before anything moves: for scenarios that place their faults themselves. */
  readonly arrange?: ((cluster: Cluster) => void) | undefined;
}

export interface SeedResult {
  readonly seed: number;
  readonly check: CheckMode;
  readonly mode: RunMode;
  readonly violation: Violation | undefined;
  readonly outcome: string;
  readonly message: string;
  readonly events: number;
  readonly virtualMs: number;
  readonly traceHash: number;
  readonly rounds: number;
  readonly attempts: number;
  readonly checkpoints: number;
  readonly ends: ReadonlyMap<string, number>;
  readonly moves: ReadonlyMap<string, number>;
  readonly fired: ReadonlyMap<string, number>;
  readonly tables: Cluster['tables'];
  /** For a failing seed: the newest events and what everybody waits for. */
  readonly recent: readonly string[];
  readonly waitingFor: readonly string[];
  readonly describe: string;
}

/** After the faults have stopped: losing everybody, taking seats again, and the slowest rounds. */
const LIVENESS_DEADLINE_MS = 240_000;
/** With standbys a coordinator waits up to five minutes for one of them to be promoted, as the control plane may be away. */
const WITH_STANDBYS_MS = 450_000;
const SAFETY_END_MS = 120_000;

export async function simulateSeed(options: SeedOptions): Promise<SeedResult> {
  // The plan has a stream of its own: what it draws does not shift what the run draws.
  const random = new Random(options.seed, 1);
  const check = options.check ?? (random.chance(0.6) ? 'liveness' : 'safety');
  const mode = options.mode ?? 'sync';
  const drawn = clusterOptions(options, random, drawnShape(options, random));
  const shape = withStartWorkers(options, drawn);
  const cluster = new Cluster(Object.assign({}, drawn, { shape }));
  const plan = faultPlan(options, random);
  options.arrange?.(cluster);
  scheduleFaults(cluster, plan);
  if (!options.shape && !options.kinds) scheduleScaling(cluster, new Random(options.seed, 17), plan.untilMs);
  if (check === 'liveness') {
    // Whoever arranges faults by hand ends them too.
    if (!options.arrange) cluster.world.schedule(plan.untilMs, 'faults end', () => endFaults(cluster));
    const deadlineMs = shape.standby > 0 ? WITH_STANDBYS_MS : LIVENESS_DEADLINE_MS;
    cluster.world.schedule(plan.untilMs + deadlineMs, 'deadline', () => {
      if (!cluster.control.isOver) cluster.checks.fail('liveness', `the run did not end within ${deadlineMs} ms after the last fault`);
    });
  } else cluster.world.schedule(SAFETY_END_MS, 'enough', () => cluster.world.stop());
  await cluster.world.run(Number.POSITIVE_INFINITY);
  const waitingFor = cluster.checks.violation ? cluster.waitingFor() : [];
  if (!cluster.checks.violation) cluster.invariants.afterRun();
  return {
    seed: options.seed,
    check,
    mode,
    violation: cluster.checks.violation,
    outcome: cluster.control.status,
    message: cluster.control.reason,
    events: cluster.world.eventCount,
    virtualMs: cluster.world.nowMs,
    traceHash: cluster.world.traceHash,
    rounds: cluster.runInvariants.committedRounds,
    attempts: cluster.control.attempt,
    checkpoints: cluster.runInvariants.checkpoints,
    ends: cluster.ends,
    moves: cluster.moves,
    fired: cluster.network.fired,
    tables: cluster.tables,
    recent: cluster.checks.violation ? cluster.world.recent.slice(-60) : [],
    waitingFor,
    describe: `${mode}${shape.isMirrored ? ' mirrored' : ''}${shape.standby > 0 ? ' with standbys' : ''}${shape.items ? ` ${JSON.stringify(shape.items)}` : ''}: ${shape.servers} servers, ${cluster.options.workers} workers, R ${shape.replicas}, ${shape.rounds} rounds, ${shape.chunks.length} chunks, ${shape.optimizer.name}${shape.optimizer.emaMomentum === undefined ? '' : ' with averages'}, ${JSON.stringify(shape.gradient)}${shape.codec ? `, codec ${JSON.stringify(shape.codec)}` : ''}${shape.local ? `, local ${JSON.stringify(shape.local)}` : ''}${shape.validation ? `, validation ${JSON.stringify(shape.validation)}` : ''}${shape.restarts === undefined ? '' : `, ${shape.restarts} restarts`}; step ${cluster.stepMs.join('–')} ms; faults every ${Math.round(plan.everyMs)} ms until ${Math.round(plan.untilMs)} ms: ${plan.kinds.join(', ') || 'none'}`,
  };
}

/** The run of a seed. @param random the stream of its plan, from which it comes first but for the check */
export function drawnShape(options: SeedOptions, random: Random): RunShape {
  const { mode = 'sync' } = options;
  const items = mode === 'sync' ? undefined : { ...randomAsync(options.seed, mode), ...options.items };
  const drawn = { ...randomShape(random), items, ...options.shape };
  // From a stream of its own too: seeds with plan streaming stay what they were.
  const gradient = items ? STREAMING : randomGradient(new Random(options.seed, 2), drawn.replicas);
  // Modes async and ssp have had standbys only later: their own stream too.
  const standby = new Random(options.seed, items ? 8 : 6).chance(0.4) ? 1 : 0;
  // Where the shape is given, so is this.
  const restarts = options.shape ? undefined : fewRestarts(new Random(options.seed, 7));
  // And this: where the shape is given, so is it.
  const isValidated = !items && !options.shape && drawn.evalExamples > 0 && gradient.backupReplicas === 0;
  const validation = isValidated ? randomValidation(new Random(options.seed, 9)) : undefined;
  // And this, where no fault is named either: seeds that name theirs stay what they were.
  const isRefined = !items && !validation && !options.shape && !options.kinds;
  const optimizer = isRefined ? randomRefinement(new Random(options.seed, 10), drawn.optimizer, gradient) : drawn.optimizer;
  const plain: RunShape = { gradient, standby, restarts, validation, ...drawn, optimizer };
  const whole = options.shape || options.kinds ? plain : refined(options.seed, plain);
  return whole.gradient.backupReplicas > 0 ? { ...whole, standby: 0 } : whole;
}

/** Sizes, codecs and strategies, from streams of their own. */
function refined(seed: number, drawn: RunShape): RunShape {
  const plain = widened(new Random(seed, 18), drawn);
  const coded = withPowerSgd(new Random(seed, 14), { ...plain, codec: randomCodec(new Random(seed, 12), plain) });
  const random = new Random(seed, 13);
  const kind = plain.items ? 1 : random.float();
  const strategic = kind < 0.15 ? withLocalSteps(random, coded) : kind < 0.35 ? mirrored(coded) : coded;
  const shape = withTable(new Random(seed, 15), strategic);
  // What is chosen of a round is not known to a validation before it is over.
  return keepsOfReplicas(shape) ? { ...shape, validation: undefined } : shape;
}

/** Some runs of mode sync with servers begin with several workers. From a stream of its own. */
function withStartWorkers({ seed, shape: given, kinds }: SeedOptions, { shape, workers }: ClusterOptions): RunShape {
  const random = new Random(seed, 16);
  const most = Math.min(shape.replicas, workers);
  if (given || kinds || shape.items || shape.isMirrored || most < 2 || random.chance(0.8)) return shape;
  return { ...shape, startWorkers: random.int(2, most) };
}

/** In a fifth of the seeds a person asks for other numbers of workers, until the faults stop. */
function scheduleScaling(cluster: Cluster, random: Random, untilMs: number): void {
  if (random.chance(0.8)) return;
  const again = (): void =>
    void cluster.world.schedule(random.pick([50, 300, 2_000]) * random.between(0.5, 2), 'scale', () => {
      if (cluster.world.nowMs > untilMs || cluster.control.isOver) return;
      cluster.control.scale(random.int(1, cluster.run.shape.replicas));
      again();
    });
  again();
}

/** A run that gives up soon has few restarts. */
const fewRestarts = (random: Random): number | undefined => (random.chance(0.06) ? random.pick([0, 0, 1, 2]) : undefined);

function clusterOptions(
  { seed, workers, apis, stepMs, plant, kinds, shape: given }: SeedOptions,
  random: Random,
  shape: RunShape,
): ClusterOptions {
  // From a stream of its own, so that it shifts nothing that the run draws.
  const drawnApis = new Random(seed, 5).pick([1, 1, 2]);
  const manyWorkers = given || kinds ? 0 : new Random(seed, 19).pick([0, 0, 0, 0, 0, 0, 0, 6, 7, 8]);
  const slow = random.pick([0.05, 0.5, 5, 50]);
  const drawn = {
    workers: random.int(1, 5),
    weather: {
      latencyMs: [slow * 0.2, slow * random.pick([1, 2, 5])] as const,
      spikes: random.pick([0, 0, 0.01, 0.1]),
      bytesPerMs: random.pick([20, 1_000, 10_000, 1_000_000]),
      windowBytes: random.pick([slow < 5 ? 64 : 2_000, 4_000, 1_000_000]),
      cuts: random.pick([0, 0.2, 0.9]),
    },
    stepMs: random.pick<readonly [number, number]>([
      [0.1, 2],
      [5, 40],
      [50, 400],
    ]),
    stepDeadlineMs: random.pick([10_000, 60_000]),
  };
  // From a stream of its own too: a queue that takes one chunk or two, or all there are; and the same of gradients that are sent ahead.
  const windowRandom = new Random(seed, 11);
  const windows = { parameterBytes: windowRandom.pick([16, 40, undefined]), gradientChunks: windowRandom.pick([1, 2, undefined]) };
  return {
    ...drawn,
    windows,
    seed,
    shape,
    plant,
    apis: apis ?? drawnApis,
    // Each of them holds a shard.
    workers: workers ?? Math.max(drawn.workers, manyWorkers, shape.isMirrored ? shape.servers : 0),
    stepMs: stepMs ?? drawn.stepMs,
  };
}

function faultPlan({ kinds }: SeedOptions, random: Random): FaultPlan {
  const ending = random.chance(0.15);
  const share = random.pick([0.1, 0.3, 0.6]);
  // Before the kinds: one more of them changes nothing for seeds that name theirs.
  const times = { everyMs: random.pick([20, 100, 500, 3_000]), untilMs: random.pick([500, 5_000, 30_000]) };
  const drawn = FAULT_KINDS.filter((kind) => ('endsAttempt' in FAULTS[kind] ? ending : random.chance(share)));
  return { kinds: kinds ?? drawn, ...times };
}
