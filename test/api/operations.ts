/** A GraphQL operation for a root field: it selects everything and declares every argument. */
import {
  getNamedType,
  isAbstractType,
  isObjectType,
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLOutputType,
  type GraphQLSchema,
} from 'graphql';

export interface Operation {
  readonly kind: 'query' | 'mutation' | 'subscription';
  readonly name: string;
  readonly text: string;
  readonly variables: readonly { readonly name: string; readonly type: GraphQLInputType; readonly argument: string }[];
}

/** The whole answer to a depth of four, with every argument on the way as a variable of its own. */
export function operationOf(
  kind: Operation['kind'],
  root: GraphQLField<unknown, unknown>,
  schema: GraphQLSchema,
  nested?: string,
): Operation {
  const variables: { name: string; type: GraphQLInputType; argument: string }[] = [];
  const select = (field: GraphQLField<unknown, unknown>, depth: number): string => {
    const given = field.args.map((argument) => {
      const name = `${argument.name}${variables.length}`;
      variables.push({ name, type: argument.type, argument: argument.name });
      return `${argument.name}: $${name}`;
    });
    return `${field.name}${given.length > 0 ? `(${given.join(', ')})` : ''}${selectionOf(field.type, depth)}`;
  };
  const selectionOf = (type: GraphQLOutputType, depth: number): string => {
    const named = getNamedType(type);
    if (isAbstractType(named))
      return ` { __typename ${schema
        .getPossibleTypes(named)
        .map((member) => `... on ${member.name} ${depth > 0 ? fieldsOf(member, depth) : '{ __typename }'}`)
        .join(' ')} }`;
    return isObjectType(named) ? ` ${fieldsOf(named, depth)}` : '';
  };
  const fieldsOf = (type: { getFields(): Record<string, GraphQLField<unknown, unknown>> }, depth: number): string => {
    const chosen = Object.values(type.getFields()).filter((field) =>
      isObjectType(getNamedType(field.type)) || isAbstractType(getNamedType(field.type))
        ? depth > 1 && field.name === nested
        : field.args.length === 0,
    );
    return `{ __typename ${chosen.map((field) => select(field, depth - 1)).join(' ')} }`;
  };
  const body = select(root, nested === undefined ? 1 : 4);
  const declared = variables.map(({ name, type }) => `$${name}: ${String(type)}`).join(', ');
  return {
    kind,
    name: nested === undefined ? root.name : `${root.name}.${nested}`,
    text: `${kind}${declared ? `(${declared})` : ''} { ${body} }`,
    variables,
  };
}
