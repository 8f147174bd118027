import type { ApolloServerPlugin } from '@apollo/server';
import { unwrapResolverError } from '@apollo/server/errors';
import type { ApolloDriverConfig } from '@nestjs/apollo';
import type { FastifyReply } from 'fastify';
import type { Logger } from '@paceline/runtime';
import { GraphQLError } from 'graphql';
import { FAULTS, RETRY_AFTER_SECONDS } from '../fault.js';
import { costOf, tooCostly } from './cost.js';
import type { Documents } from './documents.js';
import { createErrorFormatter } from './format-error.js';
import { limitRules, parseOptions } from './limits.js';
import type { AuthenticatedRequest, GraphqlContext } from './viewer.decorator.js';

/** What is known when the operation is: that it was valid, what it may cost, and whether it changes anything. */
function admission(documents: Documents): ApolloServerPlugin<GraphqlContext> {
  return {
    async requestDidStart() {
      return {
        async didResolveOperation({ schema, document, operation, source, request, contextValue }) {
          documents.keep(source, document);
          if (!operation) return; // which of several is not said: the execution refuses it
          if (operation.operation === 'mutation' && contextValue.viewer.isReadOnly)
            throw new GraphQLError('This key is read-only.', { extensions: { code: 'FORBIDDEN', http: { status: 403 } } });
          contextValue.cost = costOf(schema, document, operation, request.variables ?? {});
          const refusal = tooCostly(contextValue.cost);
          if (refusal) throw refusal;
        },
      };
    },
  };
}

/** An outage answers 503, and too much at once 429, with Retry-After, so that proxies and clients that know no GraphQL understand it too. */
const outageStatus: ApolloServerPlugin = {
  async requestDidStart() {
    return {
      async willSendResponse({ response }) {
        if (response.body.kind !== 'single') return;
        const faults = response.body.singleResult.errors?.map(({ extensions }) => extensions) ?? [];
        const found = (['SERVICE_UNAVAILABLE', 'TOO_BUSY'] as const).flatMap((code) => {
          const extensions = faults.find((candidate) => candidate?.['code'] === code);
          return extensions ? [{ code, extensions }] : [];
        })[0];
        if (!found) return;
        response.http.status = FAULTS[found.code].status;
        response.http.headers.set('retry-after', String(found.extensions['retryAfterSeconds'] ?? RETRY_AFTER_SECONDS));
      },
    };
  },
};

/** Notes which request an error belongs to: the log names it, and the answer has it as X-Request-Id. */
function naming(requestIds: WeakMap<object, string>): ApolloServerPlugin<GraphqlContext> {
  return {
    async requestDidStart() {
      return {
        async didEncounterErrors({ errors, contextValue }) {
          for (const error of errors) {
            const cause = unwrapResolverError(error);
            if (contextValue.requestId !== undefined && typeof cause === 'object' && cause !== null)
              requestIds.set(cause, contextValue.requestId);
          }
        },
      };
    },
  };
}

/** They are streams, which Apollo's HTTP does not offer: said before anything runs. */
const subscriptionsByWebSocket: ApolloServerPlugin = {
  async requestDidStart() {
    return {
      async didResolveOperation({ operation }) {
        if (operation?.operation !== 'subscription') return;
        throw new GraphQLError(
          'Subscriptions go over WebSocket (graphql-transport-ws) at /graphql; over HTTP there are queries and mutations.',
          {
            extensions: { code: 'BAD_REQUEST', http: { status: 400 } },
          },
        );
      },
    };
  },
};

export function graphqlOptions(log: Logger, documents: Documents): Omit<ApolloDriverConfig, 'driver'> {
  const requestIds = new WeakMap<object, string>();
  return {
    autoSchemaFile: true,
    sortSchema: false,
    path: '/graphql',
    introspection: true, // behind the key, like everything else here
    graphiql: false,
    allowBatchedHttpRequests: false,
    csrfPrevention: true,
    includeStacktraceInErrorResponses: false,
    autoTransformHttpErrors: false,
    preserveHttpStatusForExecutionErrors: false,
    parseOptions,
    validationRules: limitRules,
    plugins: [subscriptionsByWebSocket, admission(documents), outageStatus, naming(requestIds)],
    formatError: createErrorFormatter(log, requestIds),
    context: (request: AuthenticatedRequest, reply: FastifyReply): GraphqlContext => ({
      viewer: request.viewer!,
      requestId: request.id,
      rate: request.rate,
      reply,
    }),
  };
}
