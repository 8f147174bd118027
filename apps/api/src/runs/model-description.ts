/**
 * What a spec's model looks like, found by building it in a thread (libs/engine): a hostile topology costs that thread and nothing else,
 * and the teams take turns. The same model asked for by many at once is built once. tf.js is loaded by the first run that is created,
 * not by the start of the api.
 */
import { createHash } from 'node:crypto';
import {
  isSparse,
  matchesPatterns,
  stageCutsOf,
  type ModelDescription,
  type RowFormat,
  type RunSpec,
  type SpecIssue,
} from '@paceline/spec';
import { Fault } from '../fault.js';

/** For the building alone. */
const DEADLINE_MS = 10_000;
/** For a turn, and for a thread that loads. */
const WAIT_MS = 20_000;
const MAX_REMEMBERED = 32;

interface DescribedModel {
  readonly model: ModelDescription;
  /** Patterns of the variables that the topology freezes (trainable: false). */
  readonly frozen: readonly string[];
  /** Layers that end a stage, where the strategy cuts the model into stages. */
  readonly cutAfter: readonly string[] | undefined;
}
type Described = DescribedModel | { readonly issues: SpecIssue[] };

export class ModelDescriptions {
  private readonly remembered = new Map<string, DescribedModel>();
  /** At most as many as may wait for a thread. */
  private readonly underWay = new Map<string, Promise<Described>>();

  /** @returns the description, or what is wrong with the model @throws Fault TOO_BUSY */
  of(spec: RunSpec, format: RowFormat, teamId: string): Promise<Described> {
    const { model, loss, lossOptions, losses, lossWeights, lossFromLogits, metrics, metricOptions, engine } = spec;
    const tables = isSparse(spec) ? [spec.freeze, spec.globalBatch] : null;
    const cuts = stageCutsOf(spec.strategy) ?? null;
    const key = createHash('sha256')
      .update(
        JSON.stringify([
          model,
          format,
          loss,
          losses,
          lossWeights,
          lossFromLogits,
          metrics,
          engine,
          lossOptions,
          metricOptions,
          tables,
          cuts,
        ]),
      )
      .digest('hex');
    const known = this.remembered.get(key);
    if (known) return Promise.resolve(known);
    const present = this.underWay.get(key);
    if (present) return present;
    const asked = this.describe(spec, format, teamId, key).finally(() => this.underWay.delete(key));
    this.underWay.set(key, asked);
    return asked;
  }

  private async describe(spec: RunSpec, format: RowFormat, teamId: string, key: string): Promise<Described> {
    const { describeModelInThread, DescribeBusyError, frozenLayers, ModelError, planModel } = await import('@paceline/engine/planning');
    try {
      const { cutAfter, ...model } = await describeModelInThread(spec, format, { group: teamId, waitMs: WAIT_MS, deadlineMs: DEADLINE_MS });
      const [oldest] = this.remembered.keys();
      if (this.remembered.size >= MAX_REMEMBERED && oldest !== undefined) this.remembered.delete(oldest);
      const frozen = frozenLayers(planModel(spec, format).plan).filter((name) =>
        model.variables.some(({ path }) => matchesPatterns([name], path)),
      );
      const described = { model, frozen, cutAfter };
      this.remembered.set(key, described);
      return described;
    } catch (error) {
      if (error instanceof ModelError) return { issues: [{ path: error.path, message: error.message }] };
      if (error instanceof DescribeBusyError) throw new Fault('TOO_BUSY', `The model was not checked: ${error.message}.`, 5);
      throw error;
    }
  }
}
