/**
 * The GraphQL input of a run, made from the fields of the run spec (libs/spec, surface.ts): a field added there is an input field here.
 * Values stay as loose as GraphQL allows, because the spec's own schema checks them and names every fault at once. What has a few values stays a
 * string for two more reasons: the same words are written in YAML, REST and GraphQL, and some are no names of GraphQL (`wasm-relaxed`, `mlp-dropout`);
 * and the lists of models, datasets, losses and engines grow, which must not break a client that was made for an older list.
 */
import type { Type } from '@nestjs/common';
import { Field, Float, InputType, Int } from '@nestjs/graphql';
import { describeSurface, type SurfaceField } from '@paceline/spec';
import { JsonScalar } from '../graphql/json.scalar.js';

/** https://spec.graphql.org/October2021/#Name */
const GRAPHQL_NAME = /^[A-Za-z_]\w*$/u;
/** GraphQL's Int has 32 bits. */
const INT_MAX = 2 ** 31 - 1;

/** Makes the class `name` and, for groups, classes like `RunSpecOptimizerInput` beside it. */
export function defineSpecInput(name: string, fields: readonly SurfaceField[]): Type<object> {
  return defineInput(
    name,
    '',
    'A run to be created. Fields that are left out have their defaults. What has a few values is a string with the words of YAML and REST.',
    fields,
  );
}

function defineInput(name: string, prefix: string, description: string, fields: readonly SurfaceField[]): Type<object> {
  const input = { [name]: class {} }[name]!;
  for (const field of fields.filter(({ path }) => isDirectlyIn(prefix, path))) {
    const key = field.path.slice(prefix.length);
    const type = typeOf(name, key, field, fields);
    Field(() => type, { name: key, nullable: !field.required, description: describe(field) })(input.prototype as object, key);
  }
  InputType(name, { description })(input);
  return input;
}

const isDirectlyIn = (prefix: string, path: string): boolean => path.startsWith(prefix) && !path.slice(prefix.length).includes('.');

function typeOf(parent: string, key: string, field: SurfaceField, fields: readonly SurfaceField[]) {
  switch (field.kind) {
    case 'group':
      return defineInput(
        parent.replace(/Input$/, `${key[0]!.toUpperCase()}${key.slice(1)}Input`),
        `${field.path}.`,
        field.description,
        fields,
      );
    case 'integer':
      return (field.maximum ?? Infinity) <= INT_MAX ? Int : Float;
    case 'number':
      return Float;
    case 'boolean':
      return Boolean;
    case 'json':
      return JsonScalar;
    case 'enum-list':
    case 'string-list':
      return [String];
    case 'enum':
    case 'string':
      return String;
  }
}

/** Sentence, values, bounds, default: everything a person needs to fill the field in. */
export function describe(field: SurfaceField): string {
  const parts = [field.description];
  if (field.enumValues) parts.push(`One of ${field.enumValues.join(', ')}.`);
  const unnamed = field.enumValues?.find((value) => !GRAPHQL_NAME.test(value));
  if (unnamed !== undefined) parts.push(`A string, because ${unnamed} cannot be an enum value of GraphQL.`);
  const bounds = [
    ...(field.minimum === undefined ? [] : [`at least ${field.minimum}`]),
    ...(field.exclusiveMinimum === undefined ? [] : [`above ${field.exclusiveMinimum}`]),
    ...(field.maximum === undefined ? [] : [`at most ${field.maximum}`]),
    ...(field.exclusiveMaximum === undefined ? [] : [`below ${field.exclusiveMaximum}`]),
  ];
  if (bounds.length > 0) parts.push(`${bounds.join(', ')}.`.replace(/^./, (first) => first.toUpperCase()));
  if (field.onlyWith.length > 0) parts.push(`With ${field.onlyWith.join(' or ')}.`);
  if (field.default !== undefined) parts.push(`Default: ${JSON.stringify(field.default)}.`);
  return parts.filter(Boolean).join(' ');
}

export const RunSpecInput = defineSpecInput('RunSpecInput', describeSurface());
