/** Keras sets at the call of a MultiHeadAttention what its config sets here: whether a step may look at later ones. */
import type { LayerTopology } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';

type Arguments = Readonly<Record<string, unknown>>;

const CAUSAL = 'use_causal_mask';
/** Arguments of a call, beside its tensors, whose values have no effect. */
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = { training: [true, false, null], return_attention_scores: [false, null] };

const isObject = (value: unknown): value is Arguments => value !== null && typeof value === 'object' && !Array.isArray(value);

/** The arguments of a node of `inbound_nodes` beside its tensors: `kwargs` in Keras 3, else the fourth element of each edge. */
const argumentsOf = (node: unknown): readonly unknown[] =>
  isObject(node) ? [node['kwargs']] : Array.isArray(node) ? node.map((tensor) => (tensor as readonly unknown[] | null)?.[3]) : [];

/** Tensors that a call may name, in the order in which Keras takes them. */
const TENSORS: readonly string[] = ['query', 'value', 'key'];
const isTensor = (value: unknown): boolean => isObject(value) && value['class_name'] === '__keras_tensor__';

export function namedTensors(className: string, given: unknown): unknown[] {
  if (className !== 'MultiHeadAttention' || !isObject(given)) return [];
  return TENSORS.map((name) => given[name]).filter(isTensor);
}

/** Whether this argument of a call is supported, or has no effect. */
export function isAttentionArgument(className: string, name: string, value: unknown): boolean {
  if (className !== 'MultiHeadAttention') return false;
  if (TENSORS.includes(name) && isTensor(value)) return true;
  return (name === CAUSAL && typeof value === 'boolean') || (Object.hasOwn(NEUTRAL, name) && NEUTRAL[name]!.includes(value));
}

/**
 * The setting that the calls of a layer amount to, for its config.
 * @throws ModelError when two calls say different things
 */
export function settingsOfCalls({ class_name: className, config, inbound_nodes: nodes }: LayerTopology, path: string): Arguments {
  if (className !== 'MultiHeadAttention' || !Array.isArray(nodes)) return {};
  const own = config[CAUSAL] ?? config['useCausalMask'];
  const said = nodes.map((node: unknown) => argumentsOf(node).some((one) => isObject(one) && one[CAUSAL] === true));
  if (!said.includes(true)) return {};
  const unlike = said.indexOf(false);
  if (own === false || unlike >= 0)
    throw new ModelError(
      `${path}.inbound_nodes.${Math.max(0, unlike)}`,
      'one call has use_causal_mask and another place has not: a layer masks all of its calls or none',
    );
  return { useCausalMask: true };
}
