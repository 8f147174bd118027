import { Field, ID, InterfaceType, ObjectType } from '@nestjs/graphql';

/** Anything with an id. Object types are classes, so GraphQL can tell them apart by their constructor. */
@InterfaceType('Node', {
  resolveType: (value: object) => value.constructor.name,
  description: 'A thing with an id that is unique over all types.',
})
export abstract class Node {
  @Field(() => ID, { description: 'Unique over all types. `node(id)` finds the thing again.' })
  id!: string;
}

@ObjectType({ description: 'What there is before and after a page.' })
export class PageInfo {
  @Field({ description: 'There is more after the page.' })
  hasNextPage!: boolean;
  @Field({ description: 'There is more before the page.' })
  hasPreviousPage!: boolean;
  @Field(() => String, { nullable: true, description: 'Cursor of its first edge, to be given as `before`; null for an empty page.' })
  startCursor!: string | null;
  @Field(() => String, { nullable: true, description: 'Cursor of its last edge, to be given as `after`; null for an empty page.' })
  endCursor!: string | null;
}
