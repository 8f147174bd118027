/**
 * The run spec as a list of fields, read from its zod schema: GraphQL input, CLI flags, dashboard form and reference docs are
 * made from this list, so a field that is added to the schema appears on all of them.
 *
 * Not every surface has unions. They are laid flat by two rules:
 *  - a union of objects becomes one group with the fields of all its members, each optional (`optimizer.momentum`);
 *  - a union of a scalar with an object keeps the scalar's name and puts the object's fields beside it (`model` and
 *    `modelTopology` for `model: 'mlp' | {topology}`).
 * `specFromSurface` undoes the second rule; what does not belong together is refused by the schema itself.
 */
import { z } from 'zod';
import { runSpecSchema } from './run-spec.js';

export type SurfaceKind = 'string' | 'integer' | 'number' | 'boolean' | 'enum' | 'enum-list' | 'string-list' | 'json' | 'group';

export interface SurfaceField {
  /** Dotted name on a surface: `optimizer.learningRate`, `modelTopology`. */
  readonly path: string;
  /** Dotted name in the spec, different from `path` where a union was laid flat: `model.topology`. */
  readonly specPath: string;
  /** `group` stands before the fields inside it and has no value of its own. */
  readonly kind: SurfaceKind;
  readonly description: string;
  readonly required: boolean;
  readonly default?: unknown;
  readonly enumValues?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  /** The bounds themselves are not allowed. */
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly maxLength?: number;
  /** Members of a union that have this field: `name: momentum`. Empty when it is always there. */
  readonly onlyWith: readonly string[];
}

type AnySchema = z.core.$ZodType;
interface Place {
  readonly path: string;
  readonly specPath: string;
  readonly onlyWith: readonly string[];
}
interface Unwrapped {
  readonly schema: AnySchema;
  readonly required: boolean;
  readonly default?: unknown;
  readonly description: string;
}

/** Every field of the spec in schema order; groups before their members. @throws Error for a zod type that no surface can show */
export function describeSurface(schema: AnySchema = runSpecSchema): SurfaceField[] {
  return objectFields(unwrap(schema).schema, { path: '', specPath: '', onlyWith: [] });
}

function objectFields(schema: AnySchema, place: Place): SurfaceField[] {
  if (!(schema instanceof z.core.$ZodObject)) throw new Error(`${place.path || 'the schema'} is not an object`);
  return Object.entries(schema._zod.def.shape).flatMap(([key, child]) =>
    fieldsOf(child, { path: join(place.path, key), specPath: join(place.specPath, key), onlyWith: place.onlyWith }),
  );
}

function fieldsOf(wrapped: AnySchema, place: Place): SurfaceField[] {
  const { schema, required, description, ...rest } = unwrap(wrapped);
  const field = { ...place, description, required, ...rest };
  if (schema instanceof z.core.$ZodObject) return [{ ...field, kind: 'group' }, ...objectFields(schema, place)];
  if (schema instanceof z.core.$ZodUnion) return unionFields(schema, field);
  return [{ ...field, ...scalarOf(schema, place) }];
}

function unionFields(schema: z.core.$ZodUnion, field: Omit<SurfaceField, 'kind'>): SurfaceField[] {
  const members = schema._zod.def.options.map((option) => unwrap(option).schema);
  const objects = members.filter((member) => member instanceof z.core.$ZodObject);
  const scalars = members.filter((member) => !(member instanceof z.core.$ZodObject));
  const isFlat = scalars.length > 0;
  if (scalars.length > 1) throw new Error(`${field.path}: a union of several scalars has no place on a surface`);
  const inside = objects.flatMap((object) => {
    const tag = objects.length > 1 ? discriminatorOf(object) : undefined;
    const onlyWith = tag ? [tag.text] : [];
    return Object.entries(object._zod.def.shape).flatMap(([key, child]) =>
      fieldsOf(child, {
        path: isFlat ? field.path + key[0]!.toUpperCase() + key.slice(1) : join(field.path, key),
        specPath: join(field.specPath, key),
        onlyWith: tag?.key === key ? [] : onlyWith,
      }).map((inner) => ({ ...inner, required: false })),
    );
  });
  const first: SurfaceField = isFlat ? { ...field, ...scalarOf(scalars[0]!, field) } : { ...field, kind: 'group' };
  const merged = mergeByPath(inside).map((inner) => (inner.onlyWith.length === objects.length ? { ...inner, onlyWith: [] } : inner));
  return [first, ...merged];
}

/** `{name: 'sgd', ...}` is told apart by its literal: `name: sgd`. */
function discriminatorOf(object: z.core.$ZodObject): { key: string; text: string } | undefined {
  for (const [key, child] of Object.entries(object._zod.def.shape)) {
    const { schema } = unwrap(child);
    if (schema instanceof z.core.$ZodLiteral) return { key, text: `${key}: ${String(schema._zod.def.values[0])}` };
  }
  return undefined;
}

/** A field that several members of a union have is one field: values joined, bounds widened, a default kept when all agree. */
function mergeByPath(fields: readonly SurfaceField[]): SurfaceField[] {
  const merged = new Map<string, SurfaceField>();
  for (const field of fields) {
    const { default: ownDefault, ...present } = merged.get(field.path) ?? {};
    if (!('path' in present)) merged.set(field.path, field);
    else {
      const before = present as Omit<SurfaceField, 'default'>;
      if (before.kind !== field.kind)
        throw new Error(`${field.path} is ${before.kind} in one member of a union and ${field.kind} in another`);
      merged.set(field.path, {
        ...before,
        ...(ownDefault !== undefined && JSON.stringify(ownDefault) === JSON.stringify(field.default) ? { default: ownDefault } : {}),
        ...(before.enumValues ? { enumValues: [...new Set([...before.enumValues, ...(field.enumValues ?? [])])] } : {}),
        onlyWith: [...before.onlyWith, ...field.onlyWith],
        ...widest('minimum', Math.min, before, field),
        ...widest('maximum', Math.max, before, field),
        ...widest('exclusiveMinimum', Math.min, before, field),
        ...widest('exclusiveMaximum', Math.max, before, field),
      });
    }
  }
  return [...merged.values()];
}

function widest<K extends 'minimum' | 'maximum' | 'exclusiveMinimum' | 'exclusiveMaximum'>(
  key: K,
  choose: (a: number, b: number) => number,
  a: Omit<SurfaceField, 'default'>,
  b: SurfaceField,
): { [P in K]?: number } {
  return a[key] === undefined || b[key] === undefined ? {} : ({ [key]: choose(a[key], b[key]) } as { [P in K]?: number });
}

function scalarOf(schema: AnySchema, place: Place): Pick<SurfaceField, 'kind'> & Partial<SurfaceField> {
  if (schema instanceof z.core.$ZodEnum) return { kind: 'enum', enumValues: Object.values(schema._zod.def.entries).map(String) };
  if (schema instanceof z.core.$ZodLiteral) return { kind: 'enum', enumValues: schema._zod.def.values.map(String) };
  if (schema instanceof z.core.$ZodBoolean) return { kind: 'boolean' };
  if (schema instanceof z.core.$ZodNumber) return numberOf(schema);
  if (schema instanceof z.core.$ZodString) {
    const maxLength = checksOf(schema).find(({ check }) => check === 'max_length')?.maximum;
    return { kind: 'string', ...(maxLength === undefined ? {} : { maxLength }) };
  }
  if (schema instanceof z.core.$ZodArray) {
    const { schema: element } = unwrap(schema._zod.def.element);
    if (element instanceof z.core.$ZodEnum) return { kind: 'enum-list', enumValues: Object.values(element._zod.def.entries).map(String) };
    if (element instanceof z.core.$ZodString) return { kind: 'string-list' };
  }
  if (schema instanceof z.core.$ZodCustom || schema instanceof z.core.$ZodRecord) return { kind: 'json' };
  throw new Error(`${place.path}: a surface cannot show a ${schema._zod.def.type}`);
}

/** Bounds are kept in the checks of a schema: `greater_than`, `less_than`, `max_length`. */
function checksOf(
  schema: z.core.$ZodNumber | z.core.$ZodString,
): { check: string; value?: unknown; inclusive?: boolean; maximum?: number }[] {
  return (schema._zod.def.checks ?? []).map((check) => check._zod.def as unknown as { check: string });
}

function numberOf(schema: z.core.$ZodNumber): Pick<SurfaceField, 'kind'> & Partial<SurfaceField> {
  const bounds = checksOf(schema).flatMap(({ check, value, inclusive }): [string, number][] => {
    if (typeof value !== 'number' || (check !== 'greater_than' && check !== 'less_than')) return [];
    const side = check === 'greater_than' ? 'inimum' : 'aximum';
    return [[inclusive ? `m${side}` : `exclusiveM${side}`, value]];
  });
  const format = (schema._zod.def as { format?: string }).format ?? '';
  return { kind: format.includes('int') ? 'integer' : 'number', ...Object.fromEntries(bounds) };
}

/** Takes defaults, optionals and pipes off; a description may sit on any of the layers, the outermost wins. */
function unwrap(schema: AnySchema): Unwrapped {
  let current = schema;
  let required = true;
  let found: { default?: unknown } = {};
  let description = '';
  for (;;) {
    description ||= z.globalRegistry.get(current)?.description ?? '';
    if (current instanceof z.core.$ZodDefault) {
      found = { default: current._zod.def.defaultValue, ...found };
      required = false;
      current = current._zod.def.innerType;
    } else if (current instanceof z.core.$ZodPrefault) {
      // Its fields have defaults of their own: what they add up to is the default of the group.
      found = { default: z.parse(current, undefined), ...found };
      required = false;
      current = current._zod.def.innerType;
    } else if (current instanceof z.core.$ZodOptional || current instanceof z.core.$ZodNullable) {
      required = false;
      current = current._zod.def.innerType;
    } else if (current instanceof z.core.$ZodPipe) current = current._zod.def.in;
    else return { schema: current, required, description, ...found };
  }
}

const join = (path: string, key: string): string => (path ? `${path}.${key}` : key);

/**
 * From a value in surface form (nested objects, `modelTopology`) to what `parseRunSpec` reads. Null means "not given", as GraphQL
 * clients send it. The input is not trusted: nothing is checked here except where a field goes.
 */
export function specFromSurface(input: unknown, fields: readonly SurfaceField[] = describeSurface()): unknown {
  if (input === null || typeof input !== 'object' || Array.isArray(input)) return input;
  const spec = withoutNulls(input as Record<string, unknown>, fields);
  for (const { path, specPath } of fields) {
    if (path === specPath || path.includes('.') || !Object.hasOwn(spec, path)) continue;
    const [outer, inner] = specPath.split('.') as [string, string];
    const given = spec[outer];
    // Both forms at once: left as it stands, the schema names the fault.
    if (given !== undefined) continue;
    spec[outer] = { [inner]: spec[path] };
    delete spec[path];
  }
  return spec;
}

function withoutNulls(input: Record<string, unknown>, fields: readonly SurfaceField[], prefix = ''): Record<string, unknown> {
  const entries = Object.entries(input).flatMap(([key, value]): [string, unknown][] => {
    if (value === null || value === undefined) return [];
    const path = join(prefix, key);
    const isGroup = fields.some((field) => field.path === path && field.kind === 'group');
    return [
      [
        key,
        isGroup && typeof value === 'object' && !Array.isArray(value)
          ? withoutNulls(value as Record<string, unknown>, fields, path)
          : value,
      ],
    ];
  });
  return Object.fromEntries(entries);
}

/** The schema as JSON Schema 2020-12 (what OpenAPI 3.1 uses), as people write it: fields with a default may be left out. */
export function specJsonSchema(schema: AnySchema = runSpecSchema): Record<string, unknown> {
  return z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      if (zodSchema instanceof z.core.$ZodCustom) jsonSchema.type = 'object';
    },
  });
}
