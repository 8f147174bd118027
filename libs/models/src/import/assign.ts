/** Which tensor of a file belongs to which variable, and whether it fits. */
import { planModel, type PlannedLayer } from '@paceline/engine';
import type { ModelTopology, RunSpec, VariableSpec } from '@paceline/spec';
import { ExportError } from '../export-error.js';
import { groupsOf } from '../formats/keras-topology.js';
import type { FoundModel, FoundTensor } from './imported-model.js';
import { objectPlaces } from './object-places.js';

export interface AssignedVariable {
  readonly path: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

interface Wanted {
  readonly model: RunSpec['model'];
  readonly variables: readonly VariableSpec[];
}

/**
 * @param wanted undefined where the tensors are variables by their names
 * @throws ExportError WEIGHTS_DO_NOT_FIT, WEIGHTS_NOT_FINITE, naming the variable
 */
export function assign({ naming, tensors, topology }: FoundModel, wanted: Wanted | undefined, source: string): AssignedVariable[] {
  if (!wanted) return tensors.map((tensor) => checked(tensor.name, tensor.shape, tensor, source));
  const byPath = pairs({ naming, tensors, topology }, wanted);
  refuseTwice(byPath, source);
  return wanted.variables.flatMap(({ path, shape }) => {
    const tensor = byPath.get(path);
    return tensor ? [checked(path, shape, tensor, source)] : [];
  });
}

function checked(path: string, shape: readonly number[], tensor: FoundTensor, source: string): AssignedVariable {
  const shown = (sizes: readonly number[]): string => `[${sizes.join(', ')}]`;
  if (shown(shape) !== shown(tensor.shape))
    throw new ExportError(
      'WEIGHTS_DO_NOT_FIT',
      `${source}: variable ${path} is ${shown(shape)} in the model, and ${tensor.name} in the file is ${shown(tensor.shape)}: use the file's own topology, or another file`,
    );
  const values = tensor.read();
  const bad = values.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0)
    throw new ExportError(
      'WEIGHTS_NOT_FINITE',
      `${source}: element ${bad} of ${path} is ${values[bad]}, which would spread over the whole model: save the model from before it broke down`,
    );
  return { path, shape, values };
}

function refuseTwice(byPath: ReadonlyMap<string, FoundTensor>, source: string): void {
  const paths = new Map<FoundTensor, string>();
  for (const [path, tensor] of byPath) {
    const other = paths.get(tensor);
    if (other !== undefined)
      throw new ExportError(
        'WEIGHTS_DO_NOT_FIT',
        `${source}: ${tensor.name} in the file would be both ${other} and ${path}: give the layers different names, and save the model again`,
      );
    paths.set(tensor, path);
  }
}

function pairs({ naming, tensors, topology }: FoundModel, { model, variables }: Wanted): Map<string, FoundTensor> {
  if (naming === 'variables') return new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const byLayer = new Map<string, VariableSpec[]>();
  for (const variable of variables) {
    const layer = variable.path.slice(0, variable.path.lastIndexOf('/'));
    byLayer.set(layer, [...(byLayer.get(layer) ?? []), variable]);
  }
  const { plan } = planModel({ model }, undefined);
  const names = new Set(plan.layers.map(({ name }) => name));
  const of =
    naming === 'layers'
      ? byNames(tensors, names)
      : byObjects(
          tensors,
          objectPlaces((topology ?? (model as { topology: unknown }).topology) as ModelTopology, tensors, topology !== undefined),
          byLayer,
        );
  const found = new Map<string, FoundTensor>();
  for (const layer of plan.layers) {
    const own = byLayer.get(layer.name) ?? [];
    if (own.length > 0) for (const [path, tensor] of matched(own, of(layer))) found.set(path, tensor);
  }
  return found;
}

const lastOf = (name: string): string => name.slice(name.lastIndexOf('/') + 1);

/** Matches by the last words of the names, equal ones in their order; without a match, all in their order. */
function matched(variables: readonly VariableSpec[], tensors: readonly FoundTensor[]): [string, FoundTensor][] {
  const left = [...tensors];
  const named = variables.flatMap(({ path }): [string, FoundTensor][] => {
    const word = lastOf(path).replace(/_\d+$/, '');
    const at = left.findIndex(({ name }) => lastOf(name) === word);
    return at < 0 ? [] : [[path, left.splice(at, 1)[0]!]];
  });
  if (named.length === variables.length || tensors.length !== variables.length) return named;
  return variables.map(({ path }, i) => [path, tensors[i]!]);
}

/**
 * Names such as `encoder/dense/kernel`, `dense/kernel`, or `dense//dense/kernel` with the group that the layer has in the file. Behind the group
 * the name may begin with the models around the layer: `encoder//sequential/encoder/dense/kernel`.
 * @param names of all layers: what bears the whole name of one is not that of a layer in a nested model
 */
function byNames(tensors: readonly FoundTensor[], names: ReadonlySet<string>): (layer: PlannedLayer) => FoundTensor[] {
  const parts = tensors.map((tensor) => {
    const [group, name] = tensor.name.includes('//') ? (tensor.name.split('//') as [string, string]) : [undefined, tensor.name];
    return { tensor, group, name };
  });
  return ({ name: full }) => {
    const [outer] = full.split('/');
    const inGroup = parts.filter(({ group }) => group === undefined || group === outer || group === full);
    for (let name = full; ; name = name.slice(name.indexOf('/') + 1)) {
      const isOther = name !== full && names.has(name);
      const found = inGroup.filter(({ group, name: said }) =>
        group === undefined ? !isOther && said.startsWith(`${name}/`) : `/${said}`.includes(`/${name}/`),
      );
      if (found.length > 0) return found.map(({ tensor }) => tensor);
      if (!name.includes('/')) break;
    }
    // A group of its own, with names of what is inside of the layer.
    return full === outer ? inGroup.filter(({ group }) => group === full).map(({ tensor }) => tensor) : [];
  };
}

/** `layers/dense_1/vars/0`, with the groups that a layer has of its own in between. */
function byObjects(
  tensors: readonly FoundTensor[],
  places: ReadonlyMap<string, string>,
  byLayer: ReadonlyMap<string, readonly VariableSpec[]>,
): (layer: PlannedLayer) => FoundTensor[] {
  const at = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return ({ name, className, config }) => {
    const place = places.get(name);
    if (place === undefined) return [];
    return groupsOf(className, config, place, byLayer.get(name)?.length ?? 0).flatMap(({ path, variables, isSeed }) =>
      isSeed ? [] : Array.from({ length: variables }, (_, i) => at.get(`${path}/vars/${i}`)).filter((one) => one !== undefined),
    );
  };
}
