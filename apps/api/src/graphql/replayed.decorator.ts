import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { GqlExecutionContext } from '@nestjs/graphql';
import type { FastifyReply } from 'fastify';
import type { GraphqlContext } from './viewer.decorator.js';

/** Says in a header that the answer is that of an earlier request with the same idempotency key. */
export const OnReplay = createParamDecorator((_: unknown, context: ExecutionContext): (() => void) => {
  const reply =
    context.getType<string>() === 'graphql'
      ? GqlExecutionContext.create(context).getContext<GraphqlContext>().reply
      : context.switchToHttp().getResponse<FastifyReply>();
  return () => void reply?.header('idempotent-replayed', 'true');
});

/** The argument of every mutation that makes something. */
export const KEY_DESCRIPTION =
  'Made up by the client for this request, for example a UUID: sent again under the same key, it is carried out once. Kept for 30 days.';
