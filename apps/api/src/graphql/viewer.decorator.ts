import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { GqlExecutionContext } from '@nestjs/graphql';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Fault } from '../fault.js';
import type { RateState } from '../http/rate-limits.js';
import type { Viewer } from '../teams/authentication.js';

/** A request after `http/gate.ts` has let it in. */
export type AuthenticatedRequest = FastifyRequest & { viewer?: Viewer; rate?: RateState | undefined };

/** Everything a GraphQL operation knows of its caller. */
export interface GraphqlContext {
  readonly viewer: Viewer;
  /** Only over HTTP. */
  readonly requestId?: string;
  /** Not over WebSocket. */
  readonly reply?: FastifyReply;
  /** What the key has left after this request; undefined without a limit, and over WebSocket. */
  readonly rate?: RateState | undefined;
  /** Points that the operation may cost; undefined until it is admitted, and where its variables do not fit. */
  cost?: number | undefined;
  /** Ends when the caller goes away; subscriptions listen to it. */
  readonly signal?: AbortSignal;
}

/** The caller, in resolvers and controllers. */
export const CurrentViewer = createParamDecorator((_: unknown, context: ExecutionContext): Viewer => {
  const viewer =
    context.getType<string>() === 'graphql'
      ? GqlExecutionContext.create(context).getContext<GraphqlContext>().viewer
      : context.switchToHttp().getRequest<AuthenticatedRequest>().viewer;
  if (!viewer) throw new Fault('UNAUTHENTICATED', 'No API key was sent.');
  return viewer;
});
