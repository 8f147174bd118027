/**
 * Layers that a topology says are not trainable. They keep their values as if `freeze` of the run spec named them: the servers leave them
 * alone, and batch normalisation among them normalises by its moving averages.
 */
import { matchesPatterns } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';
import type { PlannedModel } from './planned-model.js';

interface Part {
  readonly className?: unknown;
  readonly config?: unknown;
}

/** Parts of a layer that hold all of its weights. */
const WHOLE_PARTS = ['layer', 'cell'] as const;

const configOf = (part: unknown): Record<string, unknown> | undefined => {
  const config = (part as Part | null | undefined)?.config;
  return config !== null && typeof config === 'object' ? (config as Record<string, unknown>) : undefined;
};

/**
 * Takes `trainable` out of a config in camel case and out of its parts.
 * @returns whether the layer is frozen
 * @throws ModelError for a layer that is frozen in part
 */
export function takeTrainable(config: Record<string, unknown>, path: string): boolean {
  let isFrozen = config['trainable'] === false;
  delete config['trainable'];
  for (const key of WHOLE_PARTS) {
    const inner = configOf(config[key]);
    if (inner && takeTrainable(inner, `${path}.${key}.config`)) isFrozen = true;
  }
  const backwards = configOf(config['backwardLayer']);
  if (backwards) takeTrainable(backwards, `${path}.backwardLayer.config`);
  const { cells } = config;
  if (!Array.isArray(cells)) return isFrozen;
  const flags = cells.map((cell, i) => {
    const inner = configOf(cell);
    return inner !== undefined && takeTrainable(inner, `${path}.cells.${i}.config`);
  });
  if (flags.includes(true) && flags.includes(false))
    throw new ModelError(
      `${path}.cells.${flags.indexOf(true)}.config.trainable`,
      'some cells of the stack are frozen and others are not: freeze all of them, or name the variables in `freeze` of the run spec',
    );
  return isFrozen || flags.includes(true);
}

/** Names of the layers that the topology freezes; of a nested model that is frozen as a whole, that of the model. */
export function frozenLayers({ layers }: Pick<PlannedModel, 'layers'>): string[] {
  const names = layers.filter(({ isFrozen }) => isFrozen).map(({ name }) => name);
  const trained = layers.filter(({ isFrozen, className }) => !isFrozen && className !== 'InputLayer').map(({ name }) => name);
  const shortest = names.map((name) => {
    const parts = name.split('/');
    const wholes = parts.map((_, i) => parts.slice(0, i + 1).join('/'));
    return wholes.find((whole) => !trained.some((other) => other === whole || other.startsWith(`${whole}/`))) ?? name;
  });
  return [...new Set(shortest)];
}

/** The patterns of the variables that are not trained: those of the spec, and the layers that the topology freezes. */
export function freezeOf(plan: Pick<PlannedModel, 'layers'>, freeze: readonly string[] | undefined): readonly string[] | undefined {
  const added = frozenLayers(plan).filter((name) => !matchesPatterns(freeze, `${name}/*`));
  return added.length === 0 ? freeze : [...(freeze ?? []), ...added];
}
