/**
 * What is wrong with a spec, for people: zod's issues become one short sentence each, with the path of the field, the value that was
 * given where it is short, and the name that was probably meant. This is the only place that reads zod's issues.
 */
import { z } from 'zod';
import { closest } from './closest.js';
import { FIELDS_LEFT_OUT, KINDS_LEFT_OUT } from './strategy.js';

export interface SpecIssue {
  readonly path: string;
  readonly message: string;
}

type Issue = z.core.$ZodIssue;
type Schema = z.core.$ZodType;
type Path = readonly PropertyKey[];

interface Spec {
  readonly schema: Schema;
  readonly input: unknown;
}

const isObject = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === 'object' && !Array.isArray(value);
const textOf = (path: Path): string => path.map(String).join('.') || '(spec)';

/** @returns at most 20, in the order of the schema */
export function plainIssues(schema: Schema, input: unknown, issues: readonly Issue[]): SpecIssue[] {
  const spec = { schema, input };
  const plain = issues.flatMap((issue) => plainIssue(spec, issue, issue.path));
  // One field is named once: what two members of a union say of it is the same fault.
  return plain.filter((issue, i) => plain.findIndex(({ path }) => path === issue.path) === i).slice(0, 20);
}

function plainIssue(spec: Spec, issue: Issue, path: Path): SpecIssue[] {
  const value = valueAt(spec.input, path);
  const here = (message: string): SpecIssue[] => [{ path: textOf(path), message }];
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((key) => ({ path: textOf([...path, key]), message: unknownField(spec, path, key) }));
    case 'invalid_union':
      return ofUnion(spec, issue, path);
    case 'invalid_type':
      return here(value === undefined ? 'is missing' : `must be ${KINDS[issue.expected] ?? issue.expected}${shown(value)}`);
    case 'invalid_value':
      return here(`${oneOf(issue.values.map(String))}${shown(value)}${meant(value, issue.values.map(String))}`);
    case 'too_big':
      return here(`must ${bound(issue.origin, issue.inclusive === false ? 'below' : 'at most', issue.maximum)}${shown(value)}`);
    case 'too_small':
      return here(`must ${bound(issue.origin, issue.inclusive === false ? 'above' : 'at least', issue.minimum)}${shown(value)}`);
    default:
      return here(issue.message);
  }
}

const KINDS: Readonly<Record<string, string>> = {
  int: 'a whole number',
  number: 'a number',
  string: 'a text',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object with fields',
  nan: 'a number',
  record: 'a map',
};

function bound(origin: string, how: string, limit: number | bigint): string {
  if (origin === 'string') return limit === 1 && how === 'at least' ? 'not be empty' : `have ${how} ${limit} characters`;
  if (origin === 'array' || origin === 'set') return `have ${how} ${limit} entries`;
  return `be ${how} ${limit}`;
}

const oneOf = (values: readonly string[]): string => (values.length === 1 ? `must be ${values[0]}` : `must be one of ${values.join(', ')}`);

/** `, not "adamw"`; nothing for what is missing, or would fill a page. */
function shown(value: unknown): string {
  if (value === undefined || (value !== null && typeof value === 'object')) return '';
  const text = typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : String(value);
  return `, not ${text}`;
}

function meant(value: unknown, names: readonly string[]): string {
  const near = typeof value === 'string' ? closest(value, names) : undefined;
  return near === undefined ? '' : `; did you mean ${near}?`;
}

function leftOut(value: unknown): string | undefined {
  return typeof value === 'string' && Object.hasOwn(KINDS_LEFT_OUT, value) ? `; ${KINDS_LEFT_OUT[value]}` : undefined;
}

function fieldLeftOut(path: Path): string | undefined {
  const field = textOf(path);
  return Object.hasOwn(FIELDS_LEFT_OUT, field) ? `unknown field; ${FIELDS_LEFT_OUT[field]}` : undefined;
}

function unknownField({ schema, input }: Spec, path: Path, key: string): string {
  const leftOutField = fieldLeftOut([...path, key]);
  if (leftOutField !== undefined) return leftOutField;
  const members = membersAt(schema, path);
  const owners = members.filter(({ shape }) => Object.hasOwn(shape, key)).flatMap(({ tag }) => tag ?? []);
  const tag = members.find((member) => member.tag)?.tag?.key;
  if (owners.length > 0 && tag !== undefined) {
    const own = shownTag(valueAt(input, [...path, tag]));
    return `unknown field of ${own}; it belongs to ${owners.map(({ value }) => value).join(' and ')}`;
  }
  const own = meant(
    key,
    members.flatMap(({ shape }) => Object.keys(shape)),
  );
  return `unknown field${own === '' ? meantBelow(key, members) : own}`;
}

/** The field of a group that was probably meant: `epoch` is `length.epochs`. */
function meantBelow(key: string, members: readonly Member[]): string {
  const fields = members.flatMap(({ shape }) =>
    Object.entries(shape).flatMap(([group, child]) =>
      membersOf(child).flatMap((inner) => Object.keys(inner.shape).map((name) => ({ group, name }))),
    ),
  );
  const near = closest(
    key,
    fields.map(({ name }) => name),
  );
  const field = fields.find(({ name }) => name === near);
  return field === undefined ? '' : `; did you mean ${field.group}.${field.name}?`;
}

const shownTag = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 40) : 'this kind');

function ofUnion(spec: Spec, issue: Extract<Issue, { code: 'invalid_union' }>, path: Path): SpecIssue[] {
  const { schema, input } = spec;
  const { discriminator } = issue as { discriminator?: string };
  const value = valueAt(input, discriminator === undefined || issue.path.at(-1) === discriminator ? path : [...path, discriminator]);
  if (discriminator !== undefined) return ofDiscriminated(spec, discriminator, path, value);
  const members = membersAt(schema, path);
  if (members.length === 0 && issue.errors.length > 0) return ofKinds(spec, issue, path);
  const names = members.map(({ shape }) => Object.keys(shape));
  if (isObject(value)) {
    const given = members.filter(({ shape }) => Object.keys(shape).some((key) => Object.hasOwn(value, key)));
    const keys = [...new Set(names.flat())];
    if (given.length > 1) return [{ path: textOf(path), message: `has ${keys.join(' and ')}: give one of them` }];
    const at = members.indexOf(given[0]!);
    // The member that the person meant: objects stand in the union in the same order as their issues.
    const meantIssues = issue.errors.filter((branch) =>
      branch.some((inner) => inner.path.length > 0 || inner.code === 'unrecognized_keys'),
    );
    if (given.length === 1)
      return (meantIssues[at] ?? meantIssues[0] ?? []).flatMap((inner) => plainIssue(spec, inner, [...path, ...inner.path]));
    const unknown = Object.keys(value).map((key) => ({ path: textOf([...path, key]), message: `unknown field${meant(key, keys)}` }));
    return unknown.length > 0 ? unknown.slice(0, 5) : [{ path: textOf(path), message: `must have ${keys.join(' or ')}` }];
  }
  const words = issue.errors.flatMap((branch) =>
    branch.flatMap((inner) => (inner.code === 'invalid_value' ? inner.values.map(String) : [])),
  );
  const forms = [...(words.length > 0 ? [oneOf(words).slice('must be '.length)] : []), `an object with ${names.flat().join(' or ')}`];
  return [{ path: textOf(path), message: `must be ${forms.join(', or ')}${shown(value)}${meant(value, words)}` }];
}

/** Issue of a union whose members have no named fields, such as a number or a map. */
function ofKinds(spec: Spec, issue: Extract<Issue, { code: 'invalid_union' }>, path: Path): SpecIssue[] {
  const inside = issue.errors.find((branch) => branch.some((inner) => inner.path.length > 0));
  if (inside) return inside.flatMap((inner) => plainIssue(spec, inner, [...path, ...inner.path]));
  const kinds = issue.errors.flat().flatMap((inner) => (inner.code === 'invalid_type' ? (KINDS[inner.expected] ?? inner.expected) : []));
  return [{ path: textOf(path), message: `must be ${kinds.join(' or ')}${shown(valueAt(spec.input, path))}` }];
}

/** A wrong name must not hide what else is wrong: the other fields are held to the member that they fit best. */
function ofDiscriminated({ schema, input }: Spec, discriminator: string, at: Path, value: unknown): SpecIssue[] {
  const path = at.at(-1) === discriminator ? at.slice(0, -1) : at;
  const members = membersAt(schema, path).filter(({ tag }) => tag?.key === discriminator);
  const names = members.map(({ tag }) => tag!.value);
  const group = valueAt(input, path);
  if (!isObject(group)) return [{ path: textOf(path), message: `must be an object with ${discriminator}${shown(group)}` }];
  const said =
    value === undefined ? `is missing; ${oneOf(names)}` : `${oneOf(names)}${shown(value)}${leftOut(value) ?? meant(value, names)}`;
  const others = members.map(({ schema: member, tag }) => {
    const parsed = z.safeParse(member, { ...group, [discriminator]: tag!.value });
    const issues = parsed.success ? [] : parsed.error.issues.filter(({ code }) => code !== 'unrecognized_keys');
    return issues.flatMap((inner) => plainIssue({ schema, input }, inner, [...path, ...inner.path]));
  });
  const nowhere = Object.keys(group).filter((key) => members.every(({ shape }) => !Object.hasOwn(shape, key)));
  const keys = members.flatMap(({ shape }) => Object.keys(shape));
  const fewest = [...others].sort((a, b) => a.length - b.length)[0] ?? [];
  return [
    { path: textOf([...path, discriminator]), message: said },
    ...fewest,
    ...nowhere.map((key) => ({
      path: textOf([...path, key]),
      message: fieldLeftOut([...path, key]) ?? `unknown field${meant(key, keys)}`,
    })),
  ];
}

function valueAt(input: unknown, path: Path): unknown {
  let value = input;
  for (const key of path) {
    if (value === null || typeof value !== 'object' || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

interface Member {
  readonly schema: Schema;
  readonly shape: Readonly<Record<string, Schema>>;
  /** The field that tells this member from the others: `name: sgd`. */
  readonly tag: { readonly key: string; readonly value: string } | undefined;
}

/** The objects that may stand at a path; none below values of any form. */
function membersAt(schema: Schema, path: Path): Member[] {
  const found = membersOf(schema);
  const [key, ...rest] = path;
  if (key === undefined) return found;
  const own = unwrapped(schema);
  if (own instanceof z.core.$ZodRecord) return membersAt(own._zod.def.valueType, rest);
  return found.flatMap(({ shape }) => (Object.hasOwn(shape, String(key)) ? membersAt(shape[String(key)]!, rest) : []));
}

function membersOf(wrapped: Schema): Member[] {
  const schema = unwrapped(wrapped);
  if (schema instanceof z.core.$ZodUnion) return schema._zod.def.options.flatMap(membersOf);
  if (!(schema instanceof z.core.$ZodObject)) return [];
  const { shape } = schema._zod.def;
  const tags = Object.entries(shape).flatMap(([key, child]) => {
    const literal = unwrapped(child);
    return literal instanceof z.core.$ZodLiteral ? [{ key, value: String(literal._zod.def.values[0]) }] : [];
  });
  return [{ schema, shape, tag: tags[0] }];
}

function unwrapped(schema: Schema): Schema {
  let current = schema;
  for (;;) {
    const { def } = current._zod as unknown as { def: { innerType?: Schema; in?: Schema } };
    const inner = current instanceof z.core.$ZodPipe ? def.in : def.innerType;
    if (!inner) return current;
    current = inner;
  }
}
