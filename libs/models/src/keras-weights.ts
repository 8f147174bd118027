/** The variables of a model in the order of Keras' `model.weights`: layer by layer, in each what is trained before what is not. */
import { modelVariables, ModelError } from '@paceline/engine';
import type { RunSpec, VariableSpec } from '@paceline/spec';
import { isPart, type Config } from './stock-layers.js';

/** @throws ModelError for a topology that the engine does not take, or whose layers draw random numbers that nobody could draw again */
export function variablesInKerasOrder(model: RunSpec['model']): readonly VariableSpec[] {
  const { layers, variables } = modelVariables({ model });
  for (const { className, config, path } of layers)
    if (draws(config)) throw new ModelError(path, `${className} draws random numbers: those of TensorFlow cannot be drawn again`);
  const byLayer = new Map<string, VariableSpec[]>(layers.map(({ name }) => [name, []]));
  for (const variable of variables) byLayer.get(variable.path.slice(0, variable.path.lastIndexOf('/')))!.push(variable);
  return [...byLayer.values()].flat();
}

const RANDOM = ['rate', 'dropout', 'recurrentDropout', 'stddev'] as const;

/** A layer, or one that it wraps, or a cell of it. */
function draws(config: Config): boolean {
  const { layer, cell, cells } = config;
  const inner = [layer, cell, ...(Array.isArray(cells) ? (cells as unknown[]) : [])].filter(isPart);
  return RANDOM.some((key) => Number(config[key] ?? 0) > 0) || inner.some((part) => draws(part.config));
}
