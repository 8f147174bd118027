/** What is printed from the code is as printed, and a field that is added to the run spec appears on every surface of the api. */
import 'reflect-metadata';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { NestFactory } from '@nestjs/core';
import { Args, GraphQLSchemaBuilderModule, GraphQLSchemaFactory, Query, Resolver } from '@nestjs/graphql';
import { describeSurface, runSpecSchema, specFromSurface, specJsonSchema } from '@paceline/spec';
import { buildSchema, printType, type GraphQLObjectType } from 'graphql';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { openApiDocument } from '../../apps/api/src/http/openapi.js';
import { defineSpecInput } from '../../apps/api/src/runs/run-spec.input.js';
import { isOver, mayMove, RUN_MOVES, type RunStatus } from '@paceline/control-plane';

it('the reference pages are as the code prints them (node apps/api/dist/write-reference.js)', async () => {
  // In a process of its own: what other files of this one have registered would be in it, in another order.
  const pages =
    "const { referencePages } = await import('./apps/api/dist/reference.js'); console.log(JSON.stringify(await referencePages()));";
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', pages], {
    cwd: join(import.meta.dirname, '../..'),
    maxBuffer: 64 * 1024 * 1024,
  });
  for (const [name, text] of Object.entries(JSON.parse(stdout) as Record<string, string>)) {
    expect(readFileSync(join(import.meta.dirname, '../../docs', name), 'utf8'), name).toBe(text);
  }
});

describe('a field that is added to the run spec', () => {
  const warmup = z.int().min(0).max(500).describe('Rounds until the full step size.').default(10);
  const decay = z
    .union([z.enum(['none', 'cosine']), z.strictObject({ steps: z.int().min(1).max(100).describe('Steps of the decay.') })])
    .describe('How the step size falls.')
    .default('none');
  const extended = z.strictObject({ ...runSpecSchema.shape, warmupRounds: warmup, decay });

  it('is a GraphQL input field with its bounds and default in words', async () => {
    const Input = defineSpecInput('ExtendedSpecInput', describeSurface(extended));
    class Probe {
      probe(spec: object): string {
        return JSON.stringify(spec);
      }
    }
    // Decorators by hand: no tsconfig applies to this folder.
    Reflect.defineMetadata('design:paramtypes', [Object], Probe.prototype, 'probe');
    Args('spec', { type: () => Input })(Probe.prototype, 'probe', 0);
    Query(() => String)(Probe.prototype, 'probe', Object.getOwnPropertyDescriptor(Probe.prototype, 'probe')!);
    Resolver()(Probe);
    const app = await NestFactory.createApplicationContext(GraphQLSchemaBuilderModule, { logger: false });
    const schema = await app.get(GraphQLSchemaFactory).create([Probe]);
    await app.close();
    const printed = printType(schema.getType('ExtendedSpecInput')!);
    expect(printed).toMatch(/Rounds until the full step size\. At least 0, at most 500\. Default: 10\.\s*"""\s+warmupRounds: Int/);
    expect(printed).toMatch(/decay: String/);
    expect(printed).toMatch(/decaySteps: Int/);
    expect(printed).toMatch(/globalBatch: Int/);
  });

  it('is in the OpenAPI document', () => {
    const document = openApiDocument(specJsonSchema(extended)) as {
      components: { schemas: { RunSpec: { properties: Record<string, object> } } };
    };
    expect(document.components.schemas.RunSpec.properties['warmupRounds']).toMatchObject({
      type: 'integer',
      minimum: 0,
      maximum: 500,
      default: 10,
    });
    expect(document.components.schemas.RunSpec.properties['replicas']).toMatchObject({ type: 'integer', default: 4 });
  });

  it('comes back from the flat form in the form of the spec', () => {
    const fields = describeSurface(extended);
    expect(specFromSurface({ decaySteps: 5, warmupRounds: null, optimizer: { name: 'sgd', momentum: null } }, fields)).toEqual({
      decay: { steps: 5 },
      optimizer: { name: 'sgd' },
    });
    expect(extended.safeParse(specFromSurface({ decaySteps: 5 }, fields)).data).toMatchObject({ decay: { steps: 5 }, warmupRounds: 10 });
  });
});

describe('the OpenAPI document', () => {
  it('has the idempotency key wherever a request takes one, and the header of its second answer', () => {
    const { paths } = openApiDocument() as {
      paths: Record<string, { post?: { parameters: { name: string }[]; responses: Record<string, { headers?: object }> } }>;
    };
    const keyed = Object.entries(paths).filter(([, { post }]) => post?.parameters.some(({ name }) => name === 'Idempotency-Key'));
    const replayed = Object.entries(paths).filter(([, { post }]) =>
      Object.values(post?.responses ?? {}).some(({ headers }) => headers && 'Idempotent-Replayed' in headers),
    );
    expect(keyed.map(([path]) => path)).toEqual(['/api/v1/runs', '/api/v1/runs/{id}/extend']);
    expect(replayed).toEqual(keyed);
  });

  it('has the refusal of a key that may only look wherever something is changed, and nowhere else', () => {
    const { paths } = openApiDocument() as { paths: Record<string, Record<string, { responses: object }>> };
    const operations = Object.values(paths).flatMap((of) => Object.entries(of));
    expect(operations.filter(([, { responses }]) => '403' in responses)).toEqual(operations.filter(([method]) => method !== 'get'));
    expect(paths['/api/v1/runs/{id}/events']!['get']!.responses).toHaveProperty('422');
  });

  it('says of residuals that are lost what GraphQL says of them', () => {
    const { components } = openApiDocument() as {
      components: { schemas: { LostResiduals: { description: string; properties: Record<string, { description?: string }> } } };
    };
    const { description, properties } = components.schemas.LostResiduals;
    const schema = buildSchema(readFileSync(join(import.meta.dirname, '../../docs/reference/schema.graphql'), 'utf8'));
    const type = schema.getType('LostResiduals') as GraphQLObjectType;
    expect(description).toBe(type.description);
    expect(Object.entries(properties).map(([name, property]) => [name, property.description])).toEqual(
      Object.values(type.getFields()).map((field) => [field.name, field.description]),
    );
  });
});

describe('the table of moves', () => {
  const statuses = Object.keys(RUN_MOVES) as RunStatus[];

  it('lets every status that is not over end in FAILED and CANCELLED, and nothing leave what is over but an extension', () => {
    for (const status of statuses) {
      if (isOver(status)) expect(RUN_MOVES[status]).toEqual(status === 'SUCCEEDED' ? ['QUEUED'] : []);
      else expect([mayMove(status, 'FAILED'), mayMove(status, 'CANCELLED'), mayMove(status, status)]).toEqual([true, true, false]);
    }
  });

  it('reaches every status from PENDING, and SUCCEEDED from where rounds are committed or an extension may end', () => {
    const reached = new Set<RunStatus>(['PENDING']);
    for (const status of reached) for (const next of RUN_MOVES[status]) reached.add(next);
    expect([...reached].sort()).toEqual([...statuses].sort());
    expect(statuses.filter((status) => mayMove(status, 'SUCCEEDED'))).toEqual([
      ...['QUEUED', 'PROVISIONING', 'RUNNING', 'PAUSING', 'PAUSED', 'RECOVERING'],
    ]);
  });
});
