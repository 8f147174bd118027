/** Reads and checks the model of a spec as far as that needs no tf.js. */
import { defaultModel, type RowFormat, type RunSpec } from '@paceline/spec';
import type { LossPart } from '../model/ends.js';
import { ModelError } from '../errors/model-error.js';
import { planTopology } from './plan-topology.js';
import type { PlannedModel } from './planned-model.js';
import { zooTopology } from '../model-zoo/zoo-topology.js';

/** The part of a run spec that decides about the model. */
export type ModelPart = Pick<RunSpec, 'model' | 'engine'> &
  LossPart &
  Partial<Pick<RunSpec, 'embeddings' | 'freeze' | 'globalBatch' | 'strategy'>>;

/**
 * The planned model of a spec and the field of the spec where it stands.
 * @param format of the rows: a model of the zoo takes its shapes from it
 */
export function planModel(spec: Pick<RunSpec, 'model'>, format: RowFormat | undefined): { plan: PlannedModel; root: string } {
  const model = spec.model ?? (format && defaultModel(format)) ?? 'mlp';
  if (typeof model !== 'string') return { plan: planTopology(model.topology, 'model.topology'), root: 'model.topology' };
  if (!format) throw new ModelError('model', `${model} takes its shapes from the rows, and there are none`);
  return { plan: planTopology(zooTopology(model, format), 'model'), root: 'model' };
}
