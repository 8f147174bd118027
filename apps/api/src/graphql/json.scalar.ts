import { GraphQLError, GraphQLScalarType, Kind, type ValueNode } from 'graphql';

/** Any JSON value. Literals are bounded by the token limit, variables by the size of the body. */
export const JsonScalar = new GraphQLScalarType<unknown, unknown>({
  name: 'JSON',
  description: 'Any JSON value.',
  specifiedByURL: 'https://www.rfc-editor.org/rfc/rfc8259',
  serialize: (value) => value,
  parseValue: (value) => value,
  parseLiteral: (node, variables) => valueOf(node, variables ?? {}),
});

function valueOf(node: ValueNode, variables: Record<string, unknown>): unknown {
  switch (node.kind) {
    case Kind.STRING:
    case Kind.BOOLEAN:
      return node.value;
    case Kind.INT:
    case Kind.FLOAT:
      return Number(node.value);
    case Kind.NULL:
      return null;
    case Kind.LIST:
      return node.values.map((value) => valueOf(value, variables));
    case Kind.OBJECT:
      // fromEntries defines properties, so that a field called __proto__ stays a field.
      return Object.fromEntries(node.fields.map((field) => [field.name.value, valueOf(field.value, variables)]));
    case Kind.VARIABLE:
      return variables[node.name.value];
    case Kind.ENUM:
      throw new GraphQLError('JSON has no enum values', { nodes: node });
  }
}
