import { createUnionType, Field, ID, Int, ObjectType } from '@nestjs/graphql';
import { InvalidInput, NotFound } from '../graphql/result.types.js';

@ObjectType({ description: 'A name of the team for a trained model, such as flowers:best. It may be set to another one.' })
export class ModelAlias {
  @Field({ description: 'Unique in the team.' })
  name!: string;
  @Field(() => ID, { description: 'The run whose model it is.' })
  runId!: string;
  @Field(() => Int, { nullable: true, description: 'Committed rounds of a checkpoint; null for the result.' })
  round!: number | null;
  @Field({ description: 'When it was set.' })
  updatedAt!: Date;
}

@ObjectType({ description: 'The alias was set.' })
export class SetModelAliasSuccess {
  @Field(() => ModelAlias, { description: 'The alias.' })
  readonly alias: ModelAlias;
  constructor(alias: ModelAlias) {
    this.alias = alias;
  }
}

@ObjectType({ description: 'The alias was removed; the model is as it was.' })
export class RemoveModelAliasSuccess {
  @Field({ description: 'Name of the alias.' })
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

export const SetModelAliasResult = createUnionType({
  name: 'SetModelAliasResult',
  description: 'The alias, or why it was not set.',
  types: () => [SetModelAliasSuccess, InvalidInput, NotFound] as const,
});
export const RemoveModelAliasResult = createUnionType({
  name: 'RemoveModelAliasResult',
  description: 'What was removed, or that it was not there.',
  types: () => [RemoveModelAliasSuccess, NotFound] as const,
});
