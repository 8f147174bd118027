/** What an operation may cost and how many requests the key has left, for clients that ask before they are refused. Shaped after that of GitHub's GraphQL API. */
import { Context, Field, Int, ObjectType, Query, Resolver } from '@nestjs/graphql';
import { MAX_COST } from './cost.js';
import type { GraphqlContext } from './viewer.decorator.js';

@ObjectType('RateLimit', { description: 'What this operation may cost, and how many requests the key has left at this api.' })
class RateLimitType {
  @Field(() => Int, {
    nullable: true,
    description: 'Points that this operation may cost, counted before it ran, with its variables; null where they did not fit.',
  })
  cost!: number | null;
  @Field(() => Int, { description: 'An operation that may cost more is refused.' })
  mostCost!: number;
  @Field(() => Int, { nullable: true, description: 'Requests that the key may make at once; null without a limit.' })
  limit!: number | null;
  @Field(() => Int, { nullable: true, description: 'Those that are left after this one; null without a limit.' })
  remaining!: number | null;
  @Field(() => Date, {
    nullable: true,
    description: 'When all of them are there again, if the key asks nothing until then; null without a limit.',
  })
  resetAt!: Date | null;
}

@Resolver()
export class RateLimitResolver {
  @Query(() => RateLimitType, { description: 'What this operation may cost, and how many requests your key has left.' })
  rateLimit(@Context() { cost, rate }: GraphqlContext): RateLimitType {
    const { limit = null, remaining = null, resetSeconds } = rate ?? {};
    const resetAt = resetSeconds === undefined ? null : new Date(Date.now() + resetSeconds * 1_000);
    return { cost: cost ?? null, mostCost: MAX_COST, limit, remaining, resetAt };
  }
}
