/** Runs over REST: the same operations, rules and results as GraphQL, with problem documents for what goes wrong. */
import { Readable } from 'node:stream';
import { Body, Controller, Get, Headers, HttpCode, Param, Post, Query, Res } from '@nestjs/common';
import { plainIssues } from '@paceline/spec';
import type { FastifyReply } from 'fastify';
import type { z } from 'zod';
import { Fault } from '../fault.js';
import { Conflict, InvalidInput, LimitReached, NotFound } from '../graphql/result.types.js';
import { OnReplay } from '../graphql/replayed.decorator.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import { CreateRun } from '../runs/create-run.js';
import { progressOf, resultTypeOf, trafficOf } from '../runs/run-row.js';
import { ACTIVE_STATUSES, RUN_MOVES, type ChromeTrace, type RunStatus } from '@paceline/control-plane';
import { Run } from '../runs/run.types.js';
import { EXPORT_FORMATS, type ExportFormat } from '@paceline/models';
import { RunPredictions } from '../models/run-predictions.js';
import { RunRequests } from '../runs/run-requests.js';
import { ModelExports } from '../models/model-exports.js';
import { RunSpecs } from '../runs/run-specs.js';
import { Runs } from '../runs/runs.js';
import { Weights } from '../runs/weights.js';
import { DEFAULT_TRACED_ROUNDS, RunTraces } from '../traces/run-traces.js';
import type { Viewer } from '../teams/authentication.js';
import * as bodies from './bodies.js';
import type { BodyOf } from './bodies.js';
import { listOf, type QueryValues } from './query-parameters.js';
import { endWhenStalled, whenOver } from './stalled-answers.js';

@Controller('api/v1/runs')
export class RunsController {
  constructor(
    private readonly runs: Runs,
    private readonly createRuns: CreateRun,
    private readonly requests: RunRequests,
    private readonly weights: Weights,
    private readonly exports: ModelExports,
    private readonly predicted: RunPredictions,
    private readonly traces: RunTraces,
    private readonly specs: RunSpecs,
  ) {}

  @Post()
  @HttpCode(201)
  async create(
    @CurrentViewer() viewer: Viewer,
    @Body() body: unknown,
    @Query('clusterSpecId') clusterSpecId: string | undefined,
    @Query('resumeFromRun') resumeFromRun: string | undefined,
    @Query('resumeFromRound') resumeFromRound: string | undefined,
    @Headers('idempotency-key') idempotencyKey: string | undefined,
    @OnReplay() onReplay: () => void,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    if (resumeFromRun === undefined && resumeFromRound !== undefined)
      throw new Fault('INVALID_INPUT', 'resumeFromRound: goes with resumeFromRun', undefined, [
        { path: 'resumeFromRound', message: 'goes with resumeFromRun' },
      ]);
    const asked = this.createRuns.create(viewer, body === undefined ? {} : body, {
      clusterSpecId,
      idempotencyKey,
      onReplay,
      resumeFrom: resumeFromRun === undefined ? null : { runId: resumeFromRun, round: wholeNumber('resumeFromRound', resumeFromRound) },
    });
    const run = accepted(await asked);
    await reply
      .status(201)
      .header('location', `/api/v1/runs/${run.id}`)
      .send(await this.toJson(run));
  }

  @Get()
  async list(
    @CurrentViewer() viewer: Viewer,
    @Query() { first, after, name }: QueryValues,
    @Query('status') status: string | readonly string[] | undefined,
  ): Promise<BodyOf<typeof bodies.RunPage>> {
    const { edges, pageInfo, totalCount } = await this.runs.list(viewer, {
      first: wholeNumber('first', first),
      after,
      status: statuses(listOf(status)),
      name,
    });
    return { items: edges.map(({ node }) => summary(node)), nextCursor: pageInfo.hasNextPage ? pageInfo.endCursor : null, totalCount };
  }

  @Get(':id')
  async find(@CurrentViewer() viewer: Viewer, @Param('id') id: string) {
    return this.toJson(await this.existing(viewer, id));
  }

  @Post(':id/cancel')
  @HttpCode(202)
  cancel(@CurrentViewer() viewer: Viewer, @Param('id') id: string) {
    return this.answer(this.requests.cancel(viewer, id));
  }

  @Post(':id/pause')
  @HttpCode(202)
  pause(@CurrentViewer() viewer: Viewer, @Param('id') id: string) {
    return this.answer(this.requests.pause(viewer, id));
  }

  @Post(':id/resume')
  @HttpCode(202)
  resume(@CurrentViewer() viewer: Viewer, @Param('id') id: string, @Body() body: unknown) {
    return this.answer(this.requests.resume(viewer, id, bodyOf(bodies.Resume, body).servers));
  }

  @Post(':id/scale')
  @HttpCode(202)
  scale(@CurrentViewer() viewer: Viewer, @Param('id') id: string, @Body() body: unknown) {
    return this.answer(this.requests.scale(viewer, id, bodyOf(bodies.Scale, body).workers ?? Number.NaN));
  }

  @Post(':id/extend')
  @HttpCode(202)
  extend(
    @CurrentViewer() viewer: Viewer,
    @Param('id') id: string,
    @Body() body: unknown,
    @Headers('idempotency-key') key: string | undefined,
    @OnReplay() onReplay: () => void,
  ) {
    return this.answer(this.requests.extend(viewer, id, bodyOf(bodies.Extend, body), { key, onReplay }));
  }

  @Get(':id/attempts')
  async attempts(@CurrentViewer() viewer: Viewer, @Param('id') id: string): Promise<BodyOf<typeof bodies.Attempts>> {
    return { items: await this.runs.attempts(await this.existing(viewer, id)) };
  }

  @Get(':id/checkpoints')
  async checkpoints(@CurrentViewer() viewer: Viewer, @Param('id') id: string): Promise<BodyOf<typeof bodies.Checkpoints>> {
    return { items: await this.runs.checkpoints(await this.existing(viewer, id)) };
  }

  @Get(':id/events')
  async events(
    @CurrentViewer() viewer: Viewer,
    @Param('id') id: string,
    @Query() { first, after }: QueryValues,
  ): Promise<BodyOf<typeof bodies.EventPage>> {
    const run = await this.existing(viewer, id);
    const { edges, pageInfo } = await this.runs.events(run, { first: wholeNumber('first', first), after });
    return { items: edges.map(({ node }) => node), nextCursor: pageInfo.hasNextPage ? pageInfo.endCursor : null };
  }

  /** The trained weights as a safetensors file. */
  @Get(':id/weights')
  async download(@CurrentViewer() viewer: Viewer, @Param('id') id: string, @Res() reply: FastifyReply): Promise<void> {
    const run = await this.existing(viewer, id);
    const file = await this.weights.open(run);
    if (file instanceof NotFound) throw new Fault('NOT_FOUND', file.message);
    endWhenStalled(reply.raw);
    await reply
      .headers({
        'content-type': 'application/octet-stream',
        'content-length': String(file.bytes),
        'content-disposition': `attachment; filename="${id}.safetensors"`,
        'cache-control': 'no-store',
        etag: `"${file.sha256}"`,
      })
      .send(file.stream);
  }

  /** The trained model as a zip archive, whatever the form; of a kept checkpoint where a round is given. */
  @Get(':id/export')
  async export(
    @CurrentViewer() viewer: Viewer,
    @Param('id') id: string,
    @Query() { format, round }: QueryValues,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const run = await this.existing(viewer, id);
    const { fileName, stream, release } = await this.exports.open(run, formatNamed(format), wholeNumber('round', round));
    whenOver(reply.raw, release);
    endWhenStalled(reply.raw);
    await reply
      .headers({
        'content-type': 'application/zip',
        'content-disposition': `attachment; filename="${fileName}"`,
        'cache-control': 'no-store',
      })
      .send(Readable.from(stream));
  }

  /** What the result says of the evaluation split; 202 as long as that is being computed. */
  @Get(':id/predictions')
  async predictions(@CurrentViewer() viewer: Viewer, @Param('id') id: string, @Res() reply: FastifyReply): Promise<void> {
    const found = await this.predicted.of(await this.existing(viewer, id));
    if (!found) throw new Fault('CONFLICT', 'The run has not SUCCEEDED: there is no result that could be asked.');
    if (found.state === 'COMPUTING') void reply.status(202).header('retry-after', '1');
    await reply.send(found satisfies BodyOf<typeof bodies.Predictions>);
  }

  /** Where the time of the next rounds goes, as a trace for Chrome and Perfetto; it takes some seconds. */
  @Post(':id/trace')
  @HttpCode(200)
  async trace(@CurrentViewer() viewer: Viewer, @Param('id') id: string, @Body() body: unknown): Promise<ChromeTrace> {
    const { rounds } = bodyOf(bodies.Trace, body);
    return this.traces.record(await this.existing(viewer, id), rounds ?? DEFAULT_TRACED_ROUNDS);
  }

  private async existing(viewer: Viewer, id: string): Promise<Run> {
    const run = await this.runs.find(viewer, id);
    if (!run) throw new Fault('NOT_FOUND', 'There is no run with this id.');
    return run;
  }

  /** @throws Fault when the request was refused */
  private async answer(asked: Promise<Run | InvalidInput | NotFound | Conflict | LimitReached>) {
    return this.toJson(accepted(await asked));
  }

  private async toJson(run: Run): Promise<BodyOf<typeof bodies.Run>> {
    return {
      ...summary(run),
      spec: await this.specs.of(run, {}),
      ledger: await this.runs.ledger(run),
      traffic: trafficOf(run.row),
      codec: await this.runs.codec(run),
      lostResiduals: await this.runs.lostResiduals(run),
      pickedStrategy: await this.runs.pickedStrategy(run),
      result: resultTypeOf(run.row),
    };
  }
}

function summary(run: Run): BodyOf<typeof bodies.RunSummary> {
  const {
    id,
    name,
    status,
    statusReason,
    statusChangedAt,
    attempt,
    restartsLeft,
    workersWanted,
    createdAt,
    startedAt,
    finishedAt,
    parameterCount,
  } = run;
  return {
    id,
    name,
    status,
    statusReason,
    statusChangedAt,
    attempt,
    restartsLeft,
    workersWanted,
    createdAt,
    startedAt,
    finishedAt,
    parameterCount,
    progress: progressOf(run.row),
  };
}

/** @throws Fault for what an operation refuses */
function accepted(result: Run | InvalidInput | NotFound | Conflict | LimitReached): Run {
  if (result instanceof Run) return result;
  if (result instanceof LimitReached) throw new Fault('LIMIT_REACHED', result.message);
  if (result instanceof InvalidInput) throw new Fault('INVALID_INPUT', result.message, undefined, result.issues);
  throw new Fault(result instanceof NotFound ? 'NOT_FOUND' : 'CONFLICT', result.message);
}

/** What a JSON body says; nothing without one. @throws Fault INVALID_INPUT */
function bodyOf<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const given = body === undefined ? {} : body;
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const issues = plainIssues(schema, given, parsed.error.issues);
  throw new Fault('INVALID_INPUT', issues.map(({ path, message }) => `${path}: ${message}`).join('; '), undefined, issues);
}

function wholeNumber(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new Fault('INVALID_INPUT', `${name}: must be a whole number`);
  return Number(text);
}

function formatNamed(text: string | undefined): ExportFormat {
  const found = EXPORT_FORMATS.find((format) => format === (text ?? 'tfjs'));
  if (found) return found;
  throw new Fault('INVALID_INPUT', `format: must be one of ${EXPORT_FORMATS.join(', ')}`);
}

function statuses(given: readonly string[] | undefined): RunStatus[] | undefined {
  if (given === undefined) return undefined;
  const named = given.flatMap((status): readonly string[] => (status === 'active' ? ACTIVE_STATUSES : [status]));
  const unknown = named.find((status) => !Object.hasOwn(RUN_MOVES, status));
  if (unknown !== undefined)
    throw new Fault(
      'INVALID_INPUT',
      `status: there is no status ${JSON.stringify(unknown.slice(0, 40))}; there are ${Object.keys(RUN_MOVES).join(', ')}, and active for all that are not over`,
    );
  return named as RunStatus[];
}
