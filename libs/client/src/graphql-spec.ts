/** Run specs as the schema of the api has them. */
import type { RunSpecInput } from '@paceline/spec';
import { PacelineApiError } from './api-error.js';

/**
 * GraphQL has no input unions, so a topology travels in a field of its own. A model in another form is refused here: the api would not see it, and
 * would train its default. @throws PacelineApiError INVALID_INPUT
 */
export function toGraphqlSpec(spec: RunSpecInput): Record<string, unknown> {
  const { model, ...rest } = spec as Readonly<Record<string, unknown>>;
  if (model === undefined) return rest;
  if (typeof model === 'string') return { ...rest, model };
  const { topology, ...others } = (typeof model === 'object' ? (model ?? {}) : {}) as Readonly<Record<string, unknown>>;
  if (typeof topology === 'object' && topology !== null && Object.keys(others).length === 0) return { ...rest, modelTopology: topology };
  const message =
    'give the name of a model of the zoo, or { topology } with what model.toJSON(null, false) returns, and nothing else in it';
  throw new PacelineApiError('INVALID_INPUT', `model: ${message}`, { issues: [{ path: 'model', message }] });
}
