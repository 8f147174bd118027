/**
 * Tables that are exchanged by rows: the weights of Embedding layers that look up what an input of the data names, and nothing else does anything with.
 * A worker builds the model with as few rows as it holds at once, and is fed places in that small table in place of ids.
 */
import {
  fieldsOf,
  heldRows,
  matchesPatterns,
  MOST_ROW_BYTES,
  MOST_TABLE_ROWS,
  type LayerTopology,
  type ModelDescription,
  type ModelTopology,
  type RowFormat,
  type RunSpec,
  type VariableSpec,
} from '@paceline/spec';
import type { BoundInput } from '../model/ends.js';
import { ModelError } from '../errors/model-error.js';
import { zooTopology } from '../model-zoo/zoo-topology.js';
import { snakeCase } from './plan-topology.js';
import type { PlannedLayer, PlannedModel } from './planned-model.js';

/** Which weight of a layer is its table, and which setting says how many rows that has. */
const TABLES: Readonly<Record<string, { readonly rows: string; readonly weight: string }>> = {
  Embedding: { rows: 'inputDim', weight: 'embeddings' },
  TokenAndPositionEmbedding: { rows: 'vocabularySize', weight: 'token_embeddings' },
};

/** What would have to look at the whole table. */
const WHOLE_TABLE = ['embeddingsRegularizer', 'embeddingsConstraint', 'activityRegularizer'];

type SparseSpec = Partial<Pick<RunSpec, 'freeze' | 'globalBatch'>>;

/**
 * The description with its tables marked.
 * @throws ModelError where a table cannot be exchanged by rows
 */
export function markTables(
  description: ModelDescription,
  plan: PlannedModel,
  inputs: readonly BoundInput[],
  { freeze, globalBatch = 0 }: SparseSpec,
  format: RowFormat,
): ModelDescription {
  const marks = new Map<string, number>();
  for (const [i, layer] of plan.layers.entries()) {
    const table = TABLES[layer.className];
    if (!table) continue;
    const refuse = (why: string): never => {
      throw new ModelError(layer.path, `${why}: sparse embeddings do not go with that; set embeddings.kind to dense`);
    };
    const path = `${layer.name}/${table.weight}`;
    if (layer.isFrozen === true || matchesPatterns(freeze, path)) refuse('the table is frozen');
    for (const key of WHOLE_TABLE) if (layer.config[key] != null) refuse(`${key} is of the whole table`);
    const input = inputOf(plan, i, layer, refuse);
    const { field } = inputs[input]!;
    const variable = description.variables.find((each) => each.path === path) ?? refuse(`there is no variable ${path}`);
    if (variable.shape[0]! > MOST_TABLE_ROWS)
      refuse(`the table has ${variable.shape[0]} rows, and ids come as float32, which tells ${MOST_TABLE_ROWS} apart`);
    checkFrames(variable, { globalBatch }, format, field, refuse);
    marks.set(path, field);
  }
  if (marks.size === 0) throw new ModelError('embeddings.kind', 'sparse needs a model with an Embedding layer: leave embeddings out');
  const variables = description.variables.map((variable) => {
    const input = marks.get(variable.path);
    return input === undefined ? variable : Object.assign({}, variable, { rows: { input } });
  });
  return Object.assign({}, description, { variables });
}

function checkFrames(
  variable: VariableSpec,
  spec: { readonly globalBatch: number },
  format: RowFormat,
  input: number,
  refuse: (why: string) => never,
): void {
  const held = heldRows(spec, format, Object.assign({}, variable, { rows: { input } }));
  const bytes = held * (4 * variable.shape[1]! + 4);
  if (bytes > MOST_ROW_BYTES)
    refuse(
      `the rows of a round may take ${Math.ceil(bytes / 2 ** 20)} MiB, more than the ${MOST_ROW_BYTES >> 20} MiB of a frame (a smaller globalBatch helps)`,
    );
}

/** Number of the model's input that the layer is called on, alone or with other tables. */
function inputOf(plan: PlannedModel, at: number, layer: PlannedLayer, refuse: (why: string) => never): number {
  if (plan.sequential) {
    const before = plan.layers.slice(0, at);
    return before.every(({ className }) => className === 'InputLayer') ? 0 : refuse('its ids are made by a layer');
  }
  const [call, ...others] = layer.calls;
  if (!call || others.length > 0) return refuse(`it is called ${layer.calls.length} times, as tied tables are`);
  const name = call[0]![0];
  const input = plan.inputs.findIndex(([from]) => from === name);
  if (input < 0) return refuse('its ids are made by a layer');
  const isReadElsewhere =
    plan.layers.some(({ className, calls }) => !TABLES[className] && calls.some((edges) => edges.some(([from]) => from === name))) ||
    plan.outputs.some(([from]) => from === name);
  return isReadElsewhere ? refuse(`another layer reads the input ${name} too`) : input;
}

/** The spec of what a worker builds: the model of the run with tables of so many rows. */
export function withSmallTables<Spec extends Pick<RunSpec, 'model'>>(
  spec: Spec,
  format: RowFormat,
  { variables }: Pick<ModelDescription, 'variables'>,
  rowsOf: (variable: VariableSpec) => number,
): Spec {
  const { model } = spec;
  if (model === undefined) throw new Error('the model of a run is written down when it is made');
  const topology = structuredClone(typeof model === 'string' ? zooTopology(model, format) : model.topology) as ModelTopology;
  const tables = variables.filter(({ rows }) => rows);
  for (const [i, layer] of (topology.config['layers'] as LayerTopology[]).entries()) {
    const table = TABLES[layer.class_name];
    if (!table) continue;
    const name = (layer.config['name'] ?? layer.name ?? `${snakeCase(layer.class_name)}_${i}`) as string;
    const variable = tables.find(({ path }) => path === `${name}/${table.weight}`);
    const setting = fieldsOf(layer.config).get(table.rows);
    if (!variable || !setting) throw new Error(`the table of ${name} is not one of the description`);
    (layer.config as Record<string, unknown>)[setting.key] = rowsOf(variable);
  }
  return Object.assign({}, spec, { model: { topology } });
}
