import type { ApolloServerPlugin } from '@apollo/server';
import type { ApolloDriverConfig } from '@nestjs/apollo';
import type { FastifyReply } from 'fastify';
import type { Logger } from '@paceline/runtime';
import { FAULTS, RETRY_AFTER_SECONDS } from '../fault.js';
import { createErrorFormatter } from './format-error.js';
import { limitRules, parseOptions } from './limits.js';
import type { AuthenticatedRequest, GraphqlContext } from './viewer.decorator.js';

/** An outage answers 503, and too much at once 429, with Retry-After, so that proxies and clients that know no GraphQL understand it too. */
const outageStatus: ApolloServerPlugin = {
  async requestDidStart() {
    return {
      async willSendResponse({ response }) {
        if (response.body.kind !== 'single') return;
        const codes = response.body.singleResult.errors?.map(({ extensions }) => extensions?.['code']) ?? [];
        const code = (['SERVICE_UNAVAILABLE', 'TOO_BUSY'] as const).find((temporary) => codes.includes(temporary));
        if (!code) return;
        response.http.status = FAULTS[code].status;
        response.http.headers.set('retry-after', String(RETRY_AFTER_SECONDS));
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
    plugins: [outageStatus],
    formatError: createErrorFormatter(log),
    context: (request: AuthenticatedRequest, _reply: FastifyReply): GraphqlContext => ({ viewer: request.viewer! }),
  };
}
