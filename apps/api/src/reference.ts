/** Reference pages that are printed from this app's code. `node apps/api/dist/write-reference.js` writes them; a test compares. */
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { GraphQLSchemaBuilderModule, GraphQLSchemaFactory } from '@nestjs/graphql';
import { isIntrospectionType, isSpecifiedScalarType, printType, type GraphQLSchema } from 'graphql';
import { ClusterSpecsResolver } from './cluster-specs/cluster-specs.resolver.js';
import { DatasetsResolver, DatasetVersionsResolver } from './datasets/datasets.resolver.js';
import { FleetResolver } from './fleet/fleet.resolver.js';
import { NodeResolver } from './graphql/node.resolver.js';
import { RateLimitResolver } from './graphql/rate-limit.resolver.js';
import { ModelAliasesResolver } from './models/model-aliases.resolver.js';
import { RunPredictionsResolver } from './models/predictions.resolver.js';
import { TargetScalesResolver } from './models/target-scales.js';
import { RUN_MOVES, RUN_STATUS_MEANINGS, type RunStatus } from '@paceline/control-plane';
import { RunsResolver, RunSubscriptionsResolver, StepTaskResolver } from './runs/runs.resolver.js';
import { TeamsResolver } from './teams/teams.resolver.js';

const RESOLVERS = [
  TeamsResolver,
  ClusterSpecsResolver,
  DatasetsResolver,
  DatasetVersionsResolver,
  FleetResolver,
  RunsResolver,
  StepTaskResolver,
  RunSubscriptionsResolver,
  ModelAliasesResolver,
  RunPredictionsResolver,
  TargetScalesResolver,
  NodeResolver,
  RateLimitResolver,
];

/** The schema without a server or a database behind it. */
export async function buildSchema(): Promise<GraphQLSchema> {
  const app = await NestFactory.createApplicationContext(GraphQLSchemaBuilderModule, { logger: false });
  try {
    return await app.get(GraphQLSchemaFactory).create(RESOLVERS);
  } finally {
    await app.close();
  }
}

/** By name: the order in which types are registered is that of imports. */
function printSchema(schema: GraphQLSchema): string {
  const types = Object.values(schema.getTypeMap()).filter((type) => !isIntrospectionType(type) && !isSpecifiedScalarType(type));
  return types
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(printType)
    .join('\n\n');
}

export function printRunStatusPage(): string {
  const rows = (Object.keys(RUN_MOVES) as RunStatus[]).map(
    (status) => `| ${status} | ${RUN_STATUS_MEANINGS[status]} | ${RUN_MOVES[status].join(', ') || 'nothing: it is over'} |`,
  );
  return `# Statuses of a run

Every change is a compare-and-set on the status and the attempt, is kept with its reason and time (\`statusHistory\`), and is an
event of the run (\`status.changed\`). A move that is not in this table is refused. Printed from \`libs/control-plane/src/lifecycle/run-status.ts\`.

| Status | Meaning | May become |
| --- | --- | --- |
${rows.join('\n')}
`;
}

/** Path below docs/ → text. */
export async function referencePages(): Promise<Record<string, string>> {
  return {
    'reference/schema.graphql': `# The GraphQL API at /graphql. Printed from the code: node apps/api/dist/write-reference.js\n\n${printSchema(await buildSchema())}\n`,
    'reference/run-status.md': printRunStatusPage(),
  };
}
