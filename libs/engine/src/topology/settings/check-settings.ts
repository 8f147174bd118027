/**
 * Refuses what a config says and the layer would not do: keys that it does not have, values that it does not take, settings that tf.js would
 * read and leave. Nothing is built for it; the table is `layer-settings.ts`.
 */
import { isDeepStrictEqual } from 'node:util';
import { fieldsOf, isMaskOperation, layersOf, type ConfigField, type FoundLayer, type ModelTopology } from '@paceline/spec';
import { ModelError } from '../../errors/model-error.js';
import { valueOf, type Dialect } from './dialect.js';
import { EVERY_LAYER, KERAS_SETTINGS, LAYER_SETTINGS, MODEL_SETTINGS, NESTED_SETTINGS } from './layer-settings.js';
import { snakeCase, type Setting, type Settings } from './setting.js';

type Fields = ReadonlyMap<string, ConfigField>;

/** A layer of KerasHub, which registers its layers as custom ones. */
const HUB_LAYER = 'TokenAndPositionEmbedding';

const own = (table: Settings, name: string): Setting | undefined => (Object.hasOwn(table, name) ? table[name] : undefined);
const tableOf = (className: string): Settings => (LAYER_SETTINGS as Readonly<Record<string, Settings>>)[className] ?? {};

/**
 * @param root the path of the topology
 * @throws ModelError with the path of the key
 */
export function checkSettings(topology: ModelTopology, root: string, dialect: Dialect): void {
  const found = layersOf(topology);
  const hasMasks = found.some(({ layer }) => makesMasks(layer.class_name, fieldsOf(layer.config)));
  checkConfig('the model', MODEL_SETTINGS, {}, topology.config, `${root}.config`);
  for (const one of found) {
    const { layer, path, isModel } = one;
    if (isMaskOperation(layer)) continue; // read by masks.ts
    const at = `${root}.${path.map(String).join('.')}`;
    if (isModel) {
      checkConfig('a nested model', NESTED_SETTINGS, {}, layer.config, `${at}.config`);
      continue;
    }
    // Where a person registers a class of theirs, Keras 3 says so.
    const { registered_name: registered } = layer as { readonly registered_name?: unknown };
    if (typeof registered === 'string' && registered.includes('>') && registered !== `keras_hub>${HUB_LAYER}`)
      throw new ModelError(`${at}.registered_name`, `is a class of your own, not the ${layer.class_name} of Keras, which may be used`);
    const ofKeras = dialect === 'tfjs' ? undefined : (KERAS_SETTINGS as Readonly<Record<string, Settings>>)[layer.class_name];
    const fields = fieldsOf(layer.config);
    // The cell's settings, where tf.js has written them beside the cell as well.
    const inCell = layer.class_name === 'RNN' ? settingsOfCell(fields) : undefined;
    const isBesideCell = (key: string, value: unknown): boolean => isDeepStrictEqual(inCell?.get(key)?.value, value);
    checkConfig(layer.class_name, tableOf(layer.class_name), ofKeras ?? {}, layer.config, `${at}.config`, isBesideCell);
    const fault = faultAmong(one, fields, hasMasks);
    if (fault) throw new ModelError(`${at}.config.${fields.get(fault.key)?.key ?? fault.key}`, fault.message);
  }
}

function checkConfig(
  what: string,
  table: Settings,
  stricter: Settings,
  config: Readonly<Record<string, unknown>>,
  path: string,
  isExcused: (key: string, value: unknown) => boolean = () => false,
): void {
  const isModel = table === MODEL_SETTINGS || table === NESTED_SETTINGS;
  for (const [name, { key, value: written }] of fieldsOf(config)) {
    if (written === undefined) continue;
    const setting = own(stricter, name) ?? own(table, name) ?? (isModel ? undefined : own(EVERY_LAYER, name));
    if (!setting && isExcused(name, written)) continue;
    const why = setting ? faultOf(setting, valueOf(written, name)) : unknownKey(what, key, table);
    if (why !== undefined) throw new ModelError(`${path}.${key}`, why);
  }
}

function faultOf(setting: Setting, value: unknown): string | undefined {
  if ('free' in setting) return undefined;
  if ('only' in setting) return setting.only.some((neutral) => isDeepStrictEqual(neutral, value)) ? undefined : setting.instead;
  return setting.use.holds(value) ? undefined : `must be ${setting.use.is}, not ${shown(value)}`;
}

const shown = (value: unknown): string => {
  const text = JSON.stringify(value);
  return text.length <= 100 ? text : `${text.slice(0, 100)}…`;
};

function unknownKey(what: string, key: string, table: Settings): string {
  const names = Object.keys(table).filter((name) => 'use' in table[name]!);
  const said = snakeCase(key);
  const near = names.map(snakeCase).find((name) => isNear(said, name));
  const settings = names.map(snakeCase).join(', ') || 'none of its own';
  return `${what} has no setting ${JSON.stringify(key.slice(0, 60))}: ${near ? `did you mean ${JSON.stringify(near)}?` : `leave it out; its settings are ${settings}`}`;
}

/** One of the two begins with the other, or they differ in two letters at most. */
function isNear(a: string, b: string): boolean {
  if (a.length >= 3 && b.length >= 3 && (a.startsWith(b) || b.startsWith(a))) return true;
  if (a.length > 60 || Math.abs(a.length - b.length) > 2) return false;
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row.at(-1)! <= 2;
}

interface Fault {
  readonly key: string;
  readonly message: string;
}

/** Checks of several keys together. */
function faultAmong({ layer: { class_name: className } }: FoundLayer, fields: Fields, hasMasks: boolean): Fault | undefined {
  const value = (name: string): unknown => fields.get(name)?.value;
  const isAboveOne = (name: string): boolean => [value(name) ?? 1].flat().some((one) => one !== 1);
  if (isAboveOne('dilationRate') && isAboveOne('strides'))
    return { key: 'dilationRate', message: 'strides and dilation_rate cannot both be larger than 1: use strides 1' };
  if (className === 'LeakyReLU' && fields.has('alpha') && fields.has('negativeSlope') && value('alpha') !== value('negativeSlope'))
    return { key: 'negativeSlope', message: 'says another slope than alpha, which is the same setting: leave one out' };
  if (value('zeroOutputForMask') === true && hasMasks)
    return {
      key: 'zeroOutputForMask',
      message: 'tf.js repeats the last output where a step is masked, Keras would give zeros: use false, or no mask (Masking, mask_zero)',
    };
  if (className === 'Bidirectional' && value('backwardLayer') != null && !isTheSameBackwards(value('layer'), value('backwardLayer')))
    return { key: 'backwardLayer', message: 'the backward layer must be the layer itself with go_backwards turned round: leave it out' };
  return undefined;
}

const makesMasks = (className: string, fields: Fields): boolean =>
  className === 'Masking' || (className === 'Embedding' && fields.get('maskZero')?.value === true);

function configOf(part: unknown): Readonly<Record<string, unknown>> {
  const config = (part as { config?: unknown } | null)?.config;
  return config !== null && typeof config === 'object' ? (config as Record<string, unknown>) : {};
}

function settingsOfCell(fields: Fields): Fields {
  return fieldsOf(configOf(fields.get('cell')?.value));
}

function isTheSameBackwards(layer: unknown, backward: unknown): boolean {
  const [{ go_backwards: one = false, name: _one, ...a }, { go_backwards: other = false, name: _other, ...b }] = [
    configOf(layer),
    configOf(backward),
  ];
  const nameOf = (part: unknown): unknown => (part as { class_name?: unknown }).class_name;
  return nameOf(layer) === nameOf(backward) && one !== other && isDeepStrictEqual(withoutIds(a), withoutIds(b));
}

/** A .keras file numbers the parts of layers, so that loading can share them. */
function withoutIds(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutIds);
  if (value === null || typeof value !== 'object') return value;
  const kept = Object.entries(value).filter(([key]) => key !== 'shared_object_id');
  return Object.fromEntries(kept.map(([key, inner]) => [key, withoutIds(inner)]));
}
