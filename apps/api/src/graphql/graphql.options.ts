import type { ApolloServerPlugin } from '@apollo/server';
import type { ApolloDriverConfig } from '@nestjs/apollo';
import type { FastifyReply } from 'fastify';
import { GraphQLError } from 'graphql';
import type { Logger } from '@paceline/runtime';
import { RETRY_AFTER_SECONDS } from '../fault.js';
import { createErrorFormatter } from './format-error.js';
import { limitRules, parseOptions } from './limits.js';
import type { AuthenticatedRequest, GraphqlContext } from './viewer.decorator.js';

/** An outage answers 503 with Retry-After, so that proxies and clients that know no GraphQL understand it too. */
const outageStatus: ApolloServerPlugin = {
  async requestDidStart() {
    return {
      async willSendResponse({ response }) {
        if (response.body.kind !== 'single') return;
        const codes = response.body.singleResult.errors?.map(({ extensions }) => extensions?.['code']) ?? [];
        if (!codes.some((code) => code === 'SERVICE_UNAVAILABLE' || code === 'TOO_BUSY')) return;
        response.http.status = 503;
        response.http.headers.set('retry-after', String(RETRY_AFTER_SECONDS));
      },
    };
  },
};

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

export function graphqlOptions(log: Logger): Omit<ApolloDriverConfig, 'driver'> {
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
    plugins: [outageStatus, subscriptionsByWebSocket],
    formatError: createErrorFormatter(log),
    context: (request: AuthenticatedRequest, reply: FastifyReply): GraphqlContext => ({ viewer: request.viewer!, reply }),
  };
}
