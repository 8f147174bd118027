/**
 * The flags of `paceline train`, made from the fields of the run spec: a field that is added to the schema is a flag at once.
 *
 *  - `globalBatch` is `--global-batch`, `checkpoint.final` is `--checkpoint-final` / `--no-checkpoint-final`.
 *  - The kind of a codec is `--codec`.
 *  - In the groups optimizer, strategy and length the group's name is left out (`--learning-rate`, `--servers`, `--epochs`), and the field that
 *    tells their members apart has the group's name: `--optimizer adam`.
 *  - A topology is given as a file: `--model-topology model.json`.
 *
 * Flags win over the spec file. Values are converted here and judged by the schema alone.
 */
import { readFileSync, statSync } from 'node:fs';
import { UserError } from '@paceline/runtime';
import { describeSurface, LIMITS, lossName, metricName, specFromSurface, type SurfaceField } from '@paceline/spec';
import { Option } from 'commander';
import { suggestion } from '../did-you-mean.js';

export interface SpecFlag {
  readonly field: SurfaceField;
  /** Without dashes: `learning-rate`. */
  readonly name: string;
}

const SHORT_GROUPS: ReadonlySet<string> = new Set(['optimizer', 'strategy', 'length']);
const DISCRIMINATORS: ReadonlySet<string> = new Set(['name', 'kind']);

/** @throws Error when two fields would have the same flag: the schema then needs a name of its own for one */
export function specFlags(fields: readonly SurfaceField[] = describeSurface()): SpecFlag[] {
  const flags = fields.filter((field) => field.kind !== 'group').map((field) => ({ field, name: flagName(field.path) }));
  const seen = new Map<string, string>();
  for (const { field, name } of flags) {
    const other = seen.get(name);
    if (other) throw new Error(`${field.path} and ${other} would both be --${name}`);
    seen.set(name, field.path);
  }
  return flags;
}

function flagName(path: string): string {
  const [group, ...inner] = path.split('.') as [string, ...string[]];
  if (inner.length > 0 && SHORT_GROUPS.has(group))
    return inner.length === 1 && DISCRIMINATORS.has(inner[0]!) ? kebab(group) : inner.map(kebab).join('-');
  if (path === 'codec.kind') return 'codec';
  return path.split('.').map(kebab).join('-');
}

const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** Commander options; booleans have two. */
export function specOptions(flags: readonly SpecFlag[]): Option[] {
  return flags.flatMap(({ field, name }) => {
    const description = describe(field);
    if (field.kind === 'boolean') {
      return [new Option(`--${name}`, description), new Option(`--no-${name}`).hideHelp()];
    }
    return [new Option(`--${name} ${placeholder(field)}`, description).argParser((text: string) => convert(field, name, text))];
  });
}

function placeholder({ kind }: SurfaceField): string {
  if (kind === 'json') return '<file>';
  if (kind === 'enum-list' || kind === 'string-list') return '<names>';
  return kind === 'integer' || kind === 'number' ? '<n>' : kind === 'enum' ? '<name>' : '<text>';
}

function describe(field: SurfaceField): string {
  const parts = [field.description || 'Which one.'];
  if (field.enumValues) parts.push(`One of ${field.enumValues.join(', ')}.`);
  if (field.onlyWith.length === 1) parts.push(`Only with ${field.onlyWith[0]!.replace(/^.*: /, '')}.`);
  if (field.default !== undefined)
    parts.push(`Default ${Array.isArray(field.default) ? field.default.join(',') || 'none' : String(field.default)}.`);
  if (field.kind === 'json') parts.push('Given as a JSON file.');
  return parts.join(' ');
}

/** Only the form is converted; bounds and combinations are the schema's. @throws UserError FLAG_INVALID */
function convert({ path, kind, enumValues }: SurfaceField, name: string, text: string): unknown {
  const wrong = (expected: string, meant = ''): UserError =>
    new UserError('FLAG_INVALID', `--${name} ${JSON.stringify(text.slice(0, 60))} is not ${expected}${meant || '.'}`, { exit: 'usage' });
  switch (kind) {
    case 'integer':
      if (!/^[+-]?\d+$/.test(text.trim())) throw wrong('a whole number');
      return Number(text);
    case 'number':
      if (text.trim() === '' || !Number.isFinite(Number(text))) throw wrong('a number');
      return Number(text);
    case 'enum': {
      const value = path === 'loss' ? lossName(text) : text;
      if (enumValues && !enumValues.includes(value)) throw wrong(`one of ${enumValues.join(', ')}`, suggestion(text, enumValues));
      return value;
    }
    case 'string-list':
      return text
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== '');
    case 'enum-list': {
      const names = text
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== '')
        .map((part) => metricName(part));
      const unknown = names.find((part) => !enumValues?.includes(part));
      if (unknown !== undefined) throw wrong(`a list of ${enumValues?.join(', ') ?? ''}`, suggestion(unknown, enumValues ?? []));
      return names;
    }
    case 'json':
      return readTopology(name, text);
    default:
      return text;
  }
}

function readTopology(name: string, file: string): unknown {
  try {
    if (statSync(file).size > 4 * LIMITS.modelTopologyBytes) throw new Error('it is too large');
    const value = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    // A model.json of tf.js holds the topology beside the weights' manifest.
    return value !== null && typeof value === 'object' && 'modelTopology' in value ? topologyOf(value['modelTopology']) : topologyOf(value);
  } catch (error) {
    throw new UserError('FLAG_INVALID', `--${name}: ${file} cannot be used: ${(error as Error).message}.`, { exit: 'usage', cause: error });
  }
}

/** Keras wraps it once more: `{model_config: {...}}`. */
function topologyOf(value: unknown): unknown {
  return value !== null && typeof value === 'object' && 'model_config' in value ? value.model_config : value;
}

/**
 * The spec from a file with the given flags laid over it, in the form that `parseRunSpec` reads.
 * @param given values by flag name, only those on the command line
 * @param options.inherits what is not given comes from another run, so no default is filled in
 * @throws UserError FLAG_INVALID for two flags that say the same thing
 */
export function mergeFlags(
  fromFile: Readonly<Record<string, unknown>>,
  given: ReadonlyMap<string, unknown>,
  flags: readonly SpecFlag[] = specFlags(),
  { inherits = false }: { readonly inherits?: boolean } = {},
): unknown {
  const fields = describeSurface();
  refuseAlternatives(given, flags);
  const spec = structuredClone(fromFile) as Record<string, unknown>;
  for (const { field, name } of flags) {
    if (!given.has(name)) continue;
    const [outer, ...inner] = field.path.split('.') as [string, ...string[]];
    if (inner.length === 0) {
      spec[outer] = given.get(name);
      // `model` and `modelTopology` are two forms of one field: the flag replaces what the file says.
      const other = fields.find(
        (candidate) => candidate.path !== field.path && candidate.specPath.split('.')[0] === field.specPath.split('.')[0],
      );
      if (other && !other.path.includes('.')) delete spec[other.path];
      if (field.specPath.includes('.')) delete spec[field.specPath.split('.')[0]!];
      continue;
    }
    spec[outer] = { ...startOf(spec[outer], outer, field, fields, inherits), [inner.join('.')]: given.get(name) };
  }
  return specFromSurface(spec, fields);
}

/** Two forms of one field: a file may hold one and a flag the other, but two flags contradict each other. */
function refuseAlternatives(given: ReadonlyMap<string, unknown>, flags: readonly SpecFlag[]): void {
  for (const pair of [
    ['epochs', 'rounds'],
    ['model', 'model-topology'],
  ]) {
    if (!pair.every((name) => given.has(name) && flags.some((flag) => flag.name === name))) continue;
    const [one, other] = pair.map((name) => `--${name}`);
    throw new UserError('FLAG_INVALID', `${one} and ${other} say the same thing in two ways.`, {
      hint: `Give one of them.`,
      exit: 'usage',
    });
  }
}

/** What a group holds before a flag is put in. */
function startOf(
  present: unknown,
  group: string,
  field: SurfaceField,
  fields: readonly SurfaceField[],
  inherits: boolean,
): Record<string, unknown> {
  const members = fields.filter((candidate) => candidate.path.startsWith(`${group}.`));
  const discriminator = members.find((member) => DISCRIMINATORS.has(member.path.slice(group.length + 1)));
  const isAlternative = !discriminator && field.default === undefined;
  // `--rounds` replaces epochs, and `--optimizer adam` what the file says about another optimizer.
  if (isAlternative) return {};
  const written =
    present !== null && typeof present === 'object' && !Array.isArray(present) ? (present as Record<string, unknown>) : undefined;
  if (!discriminator) return written ?? {};
  const key = discriminator.path.slice(group.length + 1);
  if (field.path === discriminator.path) return {};
  if (written) return written;
  if (inherits) return {};
  const fallback = fields.find((candidate) => candidate.path === group)?.default as Record<string, unknown> | undefined;
  return fallback?.[key] === undefined ? {} : { [key]: fallback[key] };
}
