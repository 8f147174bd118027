/** The scales of a run’s targets: a target that is scaled for the training gives errors in the scaled unit, and its scale leads back to the unit of the data. */
import { Injectable } from '@nestjs/common';
import { Field, Float, ObjectType, Parent, ResolveField, Resolver } from '@nestjs/graphql';
import type { ModelDescription, RunData } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Datasets } from '../datasets/datasets.js';
import { READ_COST } from '../graphql/cost.js';
import { specOf } from '../runs/run-row.js';
import { Run } from '../runs/run.types.js';
import { scalesOf } from './run-preprocessing.js';

@ObjectType({ description: 'How the targets of an output were scaled for the training.' })
export class TargetScale {
  @Field({ description: 'The output of the model, as the metrics of several outputs name it.' })
  output!: string;
  @Field({ description: 'What it predicts: the column of the dataset, where it is one.' })
  target!: string;
  @Field(() => [Float], {
    description:
      'What 1 of a scaled number is in the unit of the data: its standard deviation, or its range; 1 where the data is taken as it is. Several where the numbers of the output differ in it.',
  })
  factors!: number[];
}

@Injectable()
export class TargetScales {
  constructor(
    private readonly database: Database,
    private readonly datasets: Datasets,
  ) {}

  /** The scales of the targets that are numbers; none where the dataset was removed, as nobody knows them then. @throws Fault TOO_BUSY */
  async of(run: Run): Promise<TargetScale[]> {
    const row = await this.database.run.findUniqueOrThrow({ where: { id: run.id }, select: { spec: true, model: true, data: true } });
    const data = row.data as unknown as RunData;
    const model = row.model as unknown as ModelDescription;
    if (data.format.targets.every(({ kind }) => kind === 'classes')) return [];
    const { teamId, datasetVersionId } = run.row;
    const asked = { spec: specOf(row), data, model };
    if (data.source.kind === 'built-in') return scalesOf(asked, undefined);
    if (datasetVersionId === null) return [];
    return (await this.datasets.ask(teamId, datasetVersionId, 'scales', asked)) ?? [];
  }
}

/** A row, and the manifest of the dataset. */
const COST = 5 * READ_COST;

@Resolver(() => Run)
export class TargetScalesResolver {
  constructor(private readonly scales: TargetScales) {}

  @ResolveField(() => [TargetScale], {
    description:
      'How the targets of values were scaled for the training: errors are in the scaled unit. Empty where there are none, or where the dataset was removed.',
    complexity: ({ childComplexity }: { childComplexity: number }) => COST + childComplexity,
  })
  targetScales(@Parent() run: Run) {
    return this.scales.of(run);
  }
}
