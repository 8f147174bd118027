/**
 * What one GraphQL request may be, checked before anything is executed. The same rules hold over HTTP and WebSocket. Tokens are counted
 * while parsing; depth, aliases and directives are validation rules of GraphQL Armor; the cost is counted with the variables (cost.ts).
 */
import { ApolloArmor } from '@escape.tech/graphql-armor';
import { GraphQLError, parse, specifiedRules, validate, type DocumentNode, type GraphQLSchema, type ValidationRule } from 'graphql';

export const GRAPHQL_LIMITS = {
  tokens: 2_000,
  /** A subscription has one field and few below it. */
  subscriptionTokens: 200,
  depth: 12,
  aliases: 30,
  directives: 20,
  bodyBytes: 1_536 * 1024,
} as const;

export const parseOptions = { maxTokens: GRAPHQL_LIMITS.tokens };

const protection = new ApolloArmor({
  maxTokens: { enabled: false }, // graphql-js counts them itself, without parsing twice
  maxDepth: { n: GRAPHQL_LIMITS.depth },
  maxAliases: { n: GRAPHQL_LIMITS.aliases },
  maxDirectives: { n: GRAPHQL_LIMITS.directives },
  costLimit: { enabled: false }, // it does not see variables
  blockFieldSuggestion: { enabled: false }, // the schema is public to everybody with a key, and suggestions help
}).protect();

export const limitRules: ValidationRule[] = protection.validationRules;

/** For WebSocket, where nothing else parses. */
export function parseAndValidate(schema: GraphQLSchema, source: string): { document: DocumentNode } | { errors: readonly GraphQLError[] } {
  try {
    const document = parse(source, { maxTokens: GRAPHQL_LIMITS.subscriptionTokens });
    const errors = validate(schema, document, [...specifiedRules, ...limitRules], { maxErrors: 20 });
    return errors.length > 0 ? { errors } : { document };
  } catch (error) {
    if (error instanceof GraphQLError) return { errors: [error] };
    throw error;
  }
}
