/**
 * What one GraphQL request may cost, checked before anything is executed. The same rules hold over HTTP and WebSocket.
 * Tokens are counted while parsing; depth, aliases, directives and cost are validation rules of GraphQL Armor, whose cost of a
 * list is multiplied by its literal `first`/`last` (pages given by variables are bounded by their resolvers).
 */
import { ApolloArmor } from '@escape.tech/graphql-armor';
import { GraphQLError, parse, specifiedRules, validate, type DocumentNode, type GraphQLSchema, type ValidationRule } from 'graphql';

export const GRAPHQL_LIMITS = { tokens: 2_000, depth: 12, aliases: 30, directives: 20, cost: 20_000, bodyBytes: 1_536 * 1024 } as const;

export const parseOptions = { maxTokens: GRAPHQL_LIMITS.tokens };

const protection = new ApolloArmor({
  maxTokens: { enabled: false }, // graphql-js counts them itself, without parsing twice
  maxDepth: { n: GRAPHQL_LIMITS.depth },
  maxAliases: { n: GRAPHQL_LIMITS.aliases },
  maxDirectives: { n: GRAPHQL_LIMITS.directives },
  costLimit: { maxCost: GRAPHQL_LIMITS.cost, objectCost: 2, scalarCost: 1, depthCostFactor: 1.5 },
  blockFieldSuggestion: { enabled: false }, // the schema is public to everybody with a key, and suggestions help
}).protect();

export const limitRules: ValidationRule[] = protection.validationRules;

/** For WebSocket, where nothing else parses. */
export function parseAndValidate(schema: GraphQLSchema, source: string): { document: DocumentNode } | { errors: readonly GraphQLError[] } {
  try {
    const document = parse(source, parseOptions);
    const errors = validate(schema, document, [...specifiedRules, ...limitRules], { maxErrors: 20 });
    return errors.length > 0 ? { errors } : { document };
  } catch (error) {
    if (error instanceof GraphQLError) return { errors: [error] };
    throw error;
  }
}
