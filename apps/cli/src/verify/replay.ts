/** Recorded trainings under each strategy that is asked for: first those of the library, then those of the service on one cluster. */
import type { PacelineClient } from '@paceline/client';
import { UserError } from '@paceline/runtime/user-error';
import type { CommandContext } from '../command.js';
import { withTemporaryStack } from '../stack/temporary-stack.js';
import { watchRun } from '../watch-run.js';
import { heading, showStrategies, showTraining } from './show.js';
import { TRAINING_TOLERANCE } from './tolerance.js';
import {
  DEFAULT_TARGET,
  hasServers,
  processesOf,
  reasonAgainst,
  sizesOfRun,
  strategyOfRun,
  type LibraryTarget,
  type ServiceTarget,
  type Sizes,
  type Target,
} from './targets.js';
import { compareTraining, startTraining, type PlannedTraining } from './training.js';
import type { Replayed, TrainingFile } from './results.js';

export interface ReplayOptions {
  readonly workers?: number;
  readonly servers: number;
  readonly onApi?: boolean;
  readonly tolerance?: number;
  readonly dataset?: string;
}

const WORKERS = 2;

/**
 * @param targets left out: runs with parameter servers, shown tensor by tensor
 * @returns undefined when it was interrupted
 */
export async function replay(
  plans: readonly PlannedTraining[],
  targets: readonly Target[] | undefined,
  options: ReplayOptions,
  context: CommandContext,
  signal: AbortSignal,
): Promise<TrainingFile[] | undefined> {
  const { terminal } = context;
  const asked = new Replay(plans, targets, options, context);
  if (!(await asked.inLibrary(signal)) || !(await asked.inService(signal))) return undefined;
  for (const plan of plans) {
    heading(terminal, plan.recording);
    const order = (one: TrainingFile): number => asked.targets.findIndex(({ as, name }) => as === one.as && name === one.strategy);
    const found = asked.results.get(plan)!.sort((a, b) => order(a) - order(b));
    const [only] = found;
    if (targets === undefined && only && 'runId' in only) showTraining(terminal, only, { ...asked.sizes, tolerance: asked.tolerance });
    else showStrategies(terminal, found);
  }
  return [...asked.results.values()].flat();
}

class Replay {
  readonly results: ReadonlyMap<PlannedTraining, TrainingFile[]>;
  readonly sizes: Sizes;
  readonly tolerance: number;
  /** In the order in which they are shown. */
  readonly targets: readonly Target[];

  constructor(
    private readonly plans: readonly PlannedTraining[],
    private readonly named: readonly Target[] | undefined,
    private readonly options: ReplayOptions,
    private readonly context: CommandContext,
  ) {
    this.targets = named ?? [DEFAULT_TARGET];
    this.sizes = { workers: options.workers ?? (named ? WORKERS : 1), servers: options.servers };
    this.results = new Map(plans.map((plan) => [plan, []]));
    this.tolerance = options.tolerance ?? TRAINING_TOLERANCE;
  }

  /** @returns false when it was interrupted */
  async inLibrary(signal: AbortSignal): Promise<boolean> {
    const targets = this.targets.filter((target): target is LibraryTarget => target.as === 'library');
    if (targets.length === 0) return true;
    const { programOf, replayInLibrary } = await import('./library.js');
    for (const plan of this.plans) {
      const program = await programOf(plan).catch((error: Error) => error);
      for (const target of targets) {
        const work = async (): Promise<TrainingFile> => {
          const base = this.base(plan, target);
          if (program instanceof Error) return { ...base, ok: false, notServed: program.message };
          const reason = reasonAgainst(target, plan, program);
          if (reason !== undefined) return { ...base, ok: false, notServed: reason };
          const workers = processesOf(target, this.options.workers, program);
          const servers = hasServers(target) ? this.options.servers : 0;
          const sizes = { workers, servers };
          return { ...base, ...sizes, ...(await replayInLibrary(target, sizes, plan, program, this.tolerance, signal)) };
        };
        if (!(await this.kept(plan, target, work, signal))) return false;
      }
    }
    return true;
  }

  /** @returns false when it was interrupted */
  async inService(signal: AbortSignal): Promise<boolean> {
    const targets = this.targets.filter((target): target is ServiceTarget => target.as === 'service');
    for (const plan of this.plans)
      for (const target of targets) {
        const reason = reasonAgainst(target, plan, undefined);
        if (reason !== undefined) this.results.get(plan)!.push({ ...this.base(plan, target), ok: false, notServed: reason });
      }
    const served = this.plans.flatMap((plan) =>
      targets.filter((target) => reasonAgainst(target, plan, undefined) === undefined).map((target) => ({ plan, target })),
    );
    if (served.length === 0) return true;
    const all = async (client: PacelineClient, either: AbortSignal): Promise<boolean> => {
      for (const { plan, target } of served)
        if (!(await this.kept(plan, target, () => this.asRun(client, plan, target, either), either))) return false;
      return true;
    };
    const { terminal, connect } = this.context;
    if (!this.options.onApi) return (await withTemporaryStack({ name: 'verify', ...this.sizes }, terminal, signal, all)) ?? false;
    const client = connect();
    try {
      return await all(client, signal);
    } finally {
      await client.close();
    }
  }

  /** What fails under one of several strategies leaves the others. @returns false when it was interrupted */
  private async kept(
    plan: PlannedTraining,
    target: Target,
    work: () => Promise<TrainingFile | undefined>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { terminal } = this.context;
    if (this.named) terminal.note(terminal.style('dim', `${plan.recording.file}: ${target.name} of the ${target.as}`, 'stderr'));
    const result = await work().catch((error: unknown): TrainingFile | undefined => {
      if (signal.aborted) return undefined;
      if (this.named === undefined || !(error instanceof UserError)) throw error;
      return { ...this.base(plan, target), ok: false, failed: error.message };
    });
    if (result) this.results.get(plan)!.push(result);
    return result !== undefined;
  }

  /** @returns undefined when it was interrupted */
  private async asRun(
    client: PacelineClient,
    plan: PlannedTraining,
    target: ServiceTarget,
    signal: AbortSignal,
  ): Promise<TrainingFile | undefined> {
    const id = await startTraining(client, plan, strategyOfRun(target, this.sizes, plan));
    const watched = await watchRun(client, id, this.context.terminal, { signal });
    if (!watched) return undefined;
    const { status, statusReason } = watched.run;
    if (status !== 'SUCCEEDED')
      throw new UserError('RUN_NOT_SUCCEEDED', `${plan.recording.file}: the run is ${status}: ${statusReason ?? 'no reason'}`, {
        exit: 'unsuccessful',
      });
    return {
      ...this.base(plan, target),
      ...sizesOfRun(target, this.sizes),
      ...(await compareTraining(client, watched.run, plan, this.tolerance)),
    };
  }

  private base({ recording: { file, unknown } }: PlannedTraining, { name, as }: Target): Replayed {
    return { file, kind: 'training', strategy: name, as, tolerance: this.tolerance, unknownFields: unknown };
  }
}
