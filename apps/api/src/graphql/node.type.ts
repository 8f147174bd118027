import { Field, ID, InterfaceType, ObjectType } from '@nestjs/graphql';

/** Anything with an id. Object types are classes, so GraphQL can tell them apart by their constructor. */
@InterfaceType('Node', {
  resolveType: (value: object) => value.constructor.name,
  description: 'A thing with an id that is unique over all types.',
})
export abstract class Node {
  @Field(() => ID)
  id!: string;
}

@ObjectType()
export class PageInfo {
  @Field()
  hasNextPage!: boolean;
  @Field()
  hasPreviousPage!: boolean;
  @Field(() => String, { nullable: true })
  startCursor!: string | null;
  @Field(() => String, { nullable: true })
  endCursor!: string | null;
}
