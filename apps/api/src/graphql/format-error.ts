/** Errors as clients see them: always with `extensions.code`, never with a stack or a text from inside. */
import { unwrapResolverError } from '@apollo/server/errors';
import type { Logger } from '@paceline/runtime';
import { GraphQLError, type GraphQLFormattedError } from 'graphql';
import { databaseFault } from '../database/database-fault.js';
import { Fault } from '../fault.js';
import { plainVariableError } from './plain-errors.js';

/** Made by graphql-js itself: no resolver of ours stands behind it. */
export const isFromGraphql = (error: unknown): boolean =>
  error instanceof GraphQLError && (error.originalError === undefined || isFromGraphql(error.originalError));

export function createErrorFormatter(
  log: Logger,
  requestIds = new WeakMap<object, string>(),
): (formatted: GraphQLFormattedError, error: unknown) => GraphQLFormattedError {
  return (formatted, error) => {
    const cause = unwrapResolverError(error);
    const place = {
      ...(formatted.locations ? { locations: formatted.locations } : {}),
      ...(formatted.path ? { path: formatted.path } : {}),
    };
    const fault = cause instanceof Fault ? cause : databaseFault(cause);
    if (fault) {
      const { code, message, retryAfterSeconds } = fault;
      return { message, ...place, extensions: { code, ...(retryAfterSeconds ? { retryAfterSeconds } : {}) } };
    }
    const code = formatted.extensions?.['code'];
    const plain = isFromGraphql(error) ? plainVariableError(formatted.message) : undefined;
    if (plain) {
      const message = `${plain.path}: ${plain.message}`;
      return { message, ...place, extensions: { code: 'BAD_USER_INPUT', issues: [plain] } };
    }
    // What GraphQL itself says about a request (syntax, validation, coercion of variables) is for its author.
    if (typeof code === 'string' && code !== 'INTERNAL_SERVER_ERROR') return { message: formatted.message, ...place, extensions: { code } };
    if (cause instanceof GraphQLError && isFromGraphql(cause) && code !== 'INTERNAL_SERVER_ERROR')
      return { message: cause.message, ...place, extensions: { code: 'BAD_REQUEST' } };
    const requestId = typeof cause === 'object' && cause !== null ? requestIds.get(cause) : undefined;
    log.error({ err: cause as Error, path: formatted.path, requestId }, 'a GraphQL operation failed');
    return { message: 'A fault in Paceline; the log of the api says more.', ...place, extensions: { code: 'INTERNAL_SERVER_ERROR' } };
  };
}
