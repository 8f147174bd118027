/**
 * Bodies of REST, each said once: requests are checked by these schemas, the compiler and a test hold the answers to them, and the OpenAPI document is
 * printed from them. What a field means is said by the GraphQL type of the same name.
 */
import { RUN_MOVES } from '@paceline/control-plane';
import { z } from 'zod';
import { FAULTS } from '../fault.js';
import { PREDICTIONS_STATES } from '../models/predictions-states.js';
import { LOST_RESIDUALS } from '../runs/lost-residuals.js';

export type Json = Record<string, unknown>;

/** What a handler may give: dates are sent as texts. */
export type BodyOf<Schema extends z.ZodType> = DeepReadonly<z.output<Schema>>;
type DeepReadonly<T> = unknown extends T
  ? T
  : T extends Date | string | number | boolean | null | undefined
    ? T
    : { readonly [Key in keyof T]: DeepReadonly<T[Key]> };

const named = z.registry<{ readonly id: string }>();
const body = <Shape extends z.ZodRawShape>(id: string, shape: Shape, description?: string) => {
  const schema = z.object(shape);
  return (description === undefined ? schema : schema.describe(description)).register(named, { id });
};
const keysOf = <Name extends string>(table: Readonly<Record<Name, unknown>>) => z.enum(Object.keys(table) as [Name, ...Name[]]);

const text = z.string();
const int = z.int();
const number = z.number();
const time = z.coerce.date();
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const measures = z.record(text, number.nullable());
const page = { nextCursor: text.nullable() };

export const Progress = body('Progress', {
  phase: text,
  round: int,
  totalRounds: int,
  epoch: int,
  totalEpochs: number,
  loss: number.nullable(),
  accuracy: number.nullable(),
  values: measures,
  validation: z.object({ round: int, examples: int, values: measures }).nullable(),
  examplesPerSecond: number.nullable(),
  etaSeconds: number.nullable(),
  workers: int,
  replicas: int,
  waitingFor: text.nullable(),
});

const summary = {
  id: z.uuid(),
  name: text,
  status: keysOf(RUN_MOVES),
  statusReason: text.nullable(),
  statusChangedAt: time,
  attempt: int,
  restartsLeft: int,
  workersWanted: int,
  createdAt: time,
  startedAt: time.nullable(),
  finishedAt: time.nullable(),
  parameterCount: int,
  progress: Progress,
};
export const RunSummary = body('RunSummary', summary);
export const RunPage = body('RunPage', { items: z.array(RunSummary), ...page, totalCount: int });

export const Ledger = body('Ledger', {
  committedRounds: int,
  committedExamples: int,
  droppedExamples: int,
  expectedExamples: int,
  refusedFrames: int,
  refusedConnections: int,
});

export const Result = body('Result', {
  rounds: int,
  loss: number.nullable(),
  accuracy: number.nullable(),
  meanAbsoluteError: number.nullable(),
  meanSquaredError: number.nullable(),
  values: measures,
  weightsRound: int,
  examplesPerSecond: number,
  trainedExamples: int,
  trainingMs: number,
  weightsSha256: sha256,
  weightsUrl: text.nullable(),
});

const trafficBytes = { toServersBytes: int, toWorkersBytes: int, denseToServersBytes: int, denseToWorkersBytes: int };
export const Traffic = body('Traffic', { ...trafficBytes, workers: z.array(z.object({ workerId: text, ...trafficBytes })) });

export const LostResiduals = body(
  'LostResiduals',
  {
    fromRound: int.describe(LOST_RESIDUALS.fromRound),
    replicas: int.describe(LOST_RESIDUALS.replicas),
    causes: z.array(text).describe(LOST_RESIDUALS.causes),
  },
  LOST_RESIDUALS.itself,
);

export const Codec = body('Codec', {
  kind: text,
  parameters: text,
  fromRound: int,
  why: text,
  measured: z.object({
    stepMs: number,
    waitMs: number,
    latencyMs: number,
    bytesPerSecond: number,
    denseBytes: number,
    roundMs: number,
    expectedMs: number,
  }),
});

export const PickedStrategy = body('PickedStrategy', { kind: text, why: text });

export const Run = body('Run', {
  ...summary,
  spec: z.unknown().describe('A RunSpec with every default filled in.'),
  ledger: Ledger,
  traffic: Traffic.nullable(),
  codec: Codec.nullable().describe('With `codec: auto`: what was picked, and why.'),
  lostResiduals: LostResiduals.nullable().describe('What its codec had kept of replicas and has lost, from which round on.'),
  pickedStrategy: PickedStrategy.nullable().describe('With `strategy: auto`: what was picked, and why.'),
  result: Result.nullable(),
});

export const Attempt = body('Attempt', {
  number: int,
  createdAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  endCause: text.nullable(),
  endReason: text.nullable(),
  endRound: int.nullable(),
  fromRound: int,
  parentNumber: int.nullable(),
  parentRunId: text.nullable(),
});
export const Attempts = body('Attempts', { items: z.array(Attempt) });

export const Checkpoint = body('Checkpoint', {
  attempt: int,
  round: int,
  totalRounds: int,
  bytes: int,
  sha256,
  loss: number.nullable(),
  reason: text,
  state: text,
  createdAt: time,
});
export const Checkpoints = body('Checkpoints', { items: z.array(Checkpoint) });

export const Event = body('Event', { seq: int, type: text, message: text, data: z.unknown(), at: time, attempt: int });
export const EventPage = body('EventPage', { items: z.array(Event), ...page });

const example = {
  example: int,
  image: text.nullable().describe('A PNG as a data address.'),
  cells: z.array(z.unknown()).describe('In the order of `columns`.'),
};
const PredictedClasses = z.object({
  kind: z.literal('classes'),
  name: text,
  count: int,
  accuracy: number,
  classes: int,
  labels: z.array(text),
  matrix: z.array(z.array(int)).nullable(),
  confusions: z.array(z.object({ truth: text, prediction: text, count: int })),
  scores: z.array(
    z.object({ label: text, count: int, predicted: int, precision: number.nullable(), recall: number.nullable(), f1: number.nullable() }),
  ),
  wrongCount: int,
  columns: z.array(text),
  wrong: z.array(z.object({ ...example, step: int.nullable(), truth: text, prediction: text, probability: number.nullable() })),
});
const PredictedValues = z.object({
  kind: z.literal('values'),
  name: text,
  count: int,
  meanAbsoluteError: number.nullable(),
  rootMeanSquaredError: number.nullable(),
  rSquared: number.nullable(),
  points: z.array(z.array(number).length(2)),
  columns: z.array(text),
  worst: z.array(z.object({ ...example, truth: number, prediction: number })),
});
const UnpicturedOutput = z.object({ kind: z.literal('none'), name: text, reason: text });
export const Predictions = body('Predictions', {
  state: keysOf(PREDICTIONS_STATES),
  reason: text.nullable(),
  examples: int.nullable(),
  measured: int.nullable(),
  split: text.nullable(),
  outputs: z.array(z.discriminatedUnion('kind', [PredictedClasses, PredictedValues, UnpicturedOutput])),
});

const version = { version: sha256, rows: int, bytes: int };
export const Dataset = body('Dataset', {
  id: text,
  name: text,
  isBuiltIn: z.boolean(),
  title: text,
  trainExamples: int,
  evalExamples: int,
  format: z.unknown(),
  license: text.nullable(),
  source: text,
  createdAt: time.nullable(),
  newest: z.object({ id: text, ...version, columnCount: int, source: text, createdAt: time, createdBy: text }).nullable(),
});
export const DatasetPage = body('DatasetPage', { items: z.array(Dataset), ...page, totalCount: int });
export const DatasetCommit = body('DatasetCommit', { datasetId: text, name: text, ...version });
export const DatasetRemoval = body('DatasetRemoval', { name: text, versions: z.array(text) });
export const UploadedFile = body('UploadedFile', { id: text, fileName: text, bytes: int });
export const Stored = body('Stored', { sha256 });

export const Problem = body(
  'Problem',
  {
    type: text,
    title: text,
    status: int,
    code: keysOf(FAULTS),
    detail: text,
    issues: z.array(z.object({ path: text, message: text })).optional(),
  },
  'RFC 9457.',
);

// Requests that change a run. Which numbers are allowed is for the operation to say, over GraphQL and REST alike.
export const Resume = z.strictObject({ servers: number.optional() });
export const Scale = z.strictObject({ workers: number.optional() });
export const Trace = z.strictObject({ rounds: number.optional() });
export const Extend = z.strictObject({ rounds: number.optional(), epochs: number.optional() });

const AS_JSON_SCHEMA = {
  io: 'input',
  unrepresentable: 'any',
  override: ({ zodSchema, jsonSchema }: { readonly zodSchema: z.core.$ZodTypes; readonly jsonSchema: z.core.JSONSchema.BaseSchema }) => {
    if (zodSchema._zod.def.type === 'date') Object.assign(jsonSchema, { type: 'string', format: 'date-time' });
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  },
} as const;

const withoutDialect = ({ $schema: _dialect, $id: _id, ...schema }: z.core.JSONSchema.BaseSchema): Json => schema;

/** The schemas that have a name. */
export function namedSchemas(): Json {
  const { schemas } = z.toJSONSchema(named, { ...AS_JSON_SCHEMA, uri: (id) => `#/components/schemas/${id}` });
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, withoutDialect(schema)]));
}

/** A schema without a name. */
export const jsonSchemaOf = (schema: z.ZodType): Json => withoutDialect(z.toJSONSchema(schema, AS_JSON_SCHEMA));

export const nameOf = (schema: z.ZodType): string => named.get(schema)!.id;
