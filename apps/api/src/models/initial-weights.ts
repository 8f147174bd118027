/** The weights of another run, or of another program, that a new run begins with: which variables are taken, and their file in the store, where the servers look. */
import { Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { StreamCutter, type Bytes } from '@paceline/models';
import type { Logger } from '@paceline/runtime';
import { matchesPatterns, type ModelDescription, type RunSpec, type SpecIssue, type VariableSpec } from '@paceline/spec';
import { initialWeightsKey, safetensorsHeader, unclaimedWeightsPrefix } from '@paceline/storage';
import { Database } from '../database/database.js';
import { NotFound } from '../graphql/result.types.js';
import { LOGGER } from '../logger.js';
import { WITHOUT_MODEL } from '../runs/run-columns.js';
import { toRun } from '../runs/run-row.js';
import type { Viewer } from '../teams/authentication.js';
import { CheckpointStore, NO_CHECKPOINT_STORE } from './checkpoint-store.js';
import { WeightsOfRounds } from './stored-weights.js';
import { WeightUploads } from './weight-uploads.js';

const ISSUES_SHOWN = 20;
const HOUR_MS = 3_600_000;
/** Weights without a run are removed after this: no createRun takes as long. */
const UNCLAIMED_MS = 24 * HOUR_MS;

type Shaped = Pick<VariableSpec, 'path' | 'shape'>;

export interface WarmStart {
  /** The numbers of all variables, one after the other. */
  readonly stored: { readonly round: number; stream(): Bytes };
  /** In the order of the numbers. */
  readonly variables: readonly Shaped[];
  /** Paths of those that are taken. */
  readonly taken: ReadonlySet<string>;
}

@Injectable()
export class InitialWeights implements OnModuleInit, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly database: Database,
    private readonly checkpoints: CheckpointStore,
    private readonly weights: WeightsOfRounds,
    private readonly uploads: WeightUploads,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  onModuleInit(): void {
    if (!this.checkpoints.isThere) return;
    this.timer = setInterval(() => {
      this.sweep().catch((err: Error) => this.log.warn({ err: err.message }, 'initial weights without a run could not be removed'));
    }, HOUR_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** What is wrong with it, by the fields of the spec; undefined when the spec names no weights. */
  async prepare(
    viewer: Viewer,
    spec: RunSpec,
    model: ModelDescription,
  ): Promise<WarmStart | { readonly issues: readonly SpecIssue[] } | undefined> {
    if (!spec.weights) return undefined;
    const { run: id, upload, round, reinitialize } = spec.weights;
    const refuse = (path: string, message: string) => ({ issues: [{ path, message }] });
    if (!this.checkpoints.isThere) return refuse('weights', NO_CHECKPOINT_STORE);
    if (upload !== undefined) return this.ofUpload(viewer, upload, model, reinitialize);
    const where = { id: id!, teamId: viewer.teamId };
    const [row, source] = await Promise.all([
      this.database.run.findFirst({ where, omit: WITHOUT_MODEL }),
      this.database.run.findFirst({ where, select: { model: true } }),
    ]);
    if (!row || !source) return refuse('weights.run', 'there is no run with this id');
    const description = source.model as unknown as ModelDescription;
    const stored = await this.weights.find(toRun(row), description, round);
    if (stored instanceof NotFound) return refuse('weights.round', stored.message);
    return chosen(stored, description.variables, model, reinitialize, 'in that run');
  }

  private async ofUpload(
    viewer: Viewer,
    sha256: string,
    model: ModelDescription,
    reinitialize: readonly string[] | undefined,
  ): Promise<WarmStart | { readonly issues: readonly SpecIssue[] }> {
    const found = await this.uploads.open(viewer.teamId, sha256);
    if (!found)
      return {
        issues: [
          {
            path: 'weights.upload',
            message:
              'there are no uploaded weights with this hash; an upload is kept for a day: send it again (PUT /api/v1/models/weights/SHA256)',
          },
        ],
      };
    const variables = [...found.ranges.values()].map(({ name, shape }) => ({ path: name, shape }));
    return chosen({ round: 0, stream: () => found.data() }, variables, model, reinitialize, 'in the upload');
  }

  /**
   * Before the run is there: servers look for it as soon as they are asked. A note beside it says that the run is not there yet; `claim` removes
   * it. An api that ends between the two leaves the note, and `sweep` finds the file by it.
   * @throws Fault SERVICE_UNAVAILABLE, NOT_FOUND when the weights were removed meanwhile
   */
  async write(runId: string, { stored, variables, taken }: WarmStart): Promise<void> {
    const header = safetensorsHeader(
      variables.filter(({ path }) => taken.has(path)).map(({ path, shape }) => ({ name: path, shape })),
      { format: 'paceline', round: String(stored.round) },
    );
    const cutter = new StreamCutter(stored.stream());
    async function* body(): AsyncGenerator<Uint8Array, void, void> {
      try {
        yield header;
        for (const { path, shape } of variables)
          for await (const piece of cutter.take(elementsOf(shape) * 4)) if (taken.has(path)) yield piece;
      } finally {
        await cutter.end();
      }
    }
    await this.checkpoints.use(async (store) => {
      await store.put(noteOf(runId), [Buffer.from('{}')]);
      await store.put(initialWeightsKey(runId), body());
    });
  }

  /** The run is there: the file is its own from now on. */
  async claim(runId: string): Promise<void> {
    await this.checkpoints.store.remove([noteOf(runId)]);
  }

  async remove(runId: string): Promise<void> {
    if (this.checkpoints.isThere) await this.checkpoints.store.remove([initialWeightsKey(runId), noteOf(runId)]);
  }

  /** @returns files that were removed: weights that were written a day ago and whose run was never made */
  async sweep(now = Date.now()): Promise<number> {
    const { store } = this.checkpoints;
    const notes = (await store.list(unclaimedWeightsPrefix)).map(({ key }) => key);
    const old = notes.map(runOfNote).filter((id) => id !== undefined && now - madeAtMs(id) > UNCLAIMED_MS) as string[];
    const made = await this.database.run.findMany({ where: { id: { in: old } }, select: { id: true } });
    const kept = new Set(made.map(({ id }) => id));
    const orphans = old.filter((id) => !kept.has(id));
    // The note goes last: a sweep that ends early is done again.
    await store.remove([...orphans.map(initialWeightsKey), ...old.map(noteOf)]);
    return orphans.length;
  }
}

/** Patterns that name nothing. */
function idlePatterns(path: string, patterns: readonly string[] = [], { variables }: ModelDescription): SpecIssue[] {
  const idle = patterns.filter((pattern) => !variables.some((variable) => matchesPatterns([pattern], variable.path)));
  const known = [...new Set(variables.map((variable) => variable.path.slice(0, variable.path.lastIndexOf('/'))))].slice(0, 10).join(', ');
  return idle.map((pattern) => ({ path, message: `${JSON.stringify(pattern)} names no variable; layers with variables are ${known}` }));
}

/** Patterns of variables that would decay after all. */
export const decayIssues = ({ optimizer }: Pick<RunSpec, 'optimizer'>, model: ModelDescription): SpecIssue[] =>
  'weightDecayExclude' in optimizer ? idlePatterns('optimizer.weightDecayExclude', optimizer.weightDecayExclude, model) : [];

/** Patterns that name nothing, or leave nothing to train. */
export function freezeIssues({ freeze }: Pick<RunSpec, 'freeze'>, model: ModelDescription): SpecIssue[] {
  if (!freeze) return [];
  const { variables } = model;
  const issues = idlePatterns('freeze', freeze, model);
  if (variables.every(({ path, section }) => section === 'state' || matchesPatterns(freeze, path)))
    issues.push({ path: 'freeze', message: 'leaves no variable to train' });
  return issues;
}

const noteOf = (runId: string): string => `${unclaimedWeightsPrefix}${runId}.json`;
const runOfNote = (key: string): string | undefined => /\/([0-9a-f-]{36})\.json$/.exec(key)?.[1];
/** The first 48 bits of a UUID of version 7 (RFC 9562). */
const madeAtMs = (runId: string): number => Number.parseInt(runId.replaceAll('-', '').slice(0, 12), 16);

const shown = (shape: readonly number[]): string => `[${shape.join(', ')}]`;
const elementsOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Those of the variables that the model has, unless they are to begin anew. @param where they are, for messages */
function chosen(
  stored: WarmStart['stored'],
  variables: readonly Shaped[],
  model: ModelDescription,
  reinitialize: readonly string[] | undefined,
  where: string,
): WarmStart | { readonly issues: readonly SpecIssue[] } {
  const there = new Map(variables.map((variable) => [variable.path, variable]));
  const wanted = model.variables.filter(({ path }) => !matchesPatterns(reinitialize, path));
  const issues = wanted.flatMap((variable): SpecIssue[] => {
    const found = there.get(variable.path);
    const [is, was] = [shown(variable.shape), found && shown(found.shape)];
    if (is === was) return [];
    const why = was === undefined ? `is not ${where}` : `is ${was} ${where}`;
    return [{ path: 'weights.reinitialize', message: `variable ${variable.path} ${is} ${why}: name it here to begin with new values` }];
  });
  if (issues.length > 0) return { issues: issues.slice(0, ISSUES_SHOWN) };
  return { stored, variables, taken: new Set(wanted.map(({ path }) => path)) };
}
