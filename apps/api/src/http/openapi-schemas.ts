/** The bodies that the OpenAPI description names: runs, what they were before, problems. */
import { RUN_MOVES } from '@paceline/control-plane';
import { FAULTS } from '../fault.js';
import { PREDICTIONS_STATES } from '../models/predictions-states.js';
import { datasetSchemas } from './openapi-datasets.js';
import { integer, nullable, number, ref, text, time, type Json } from './openapi-parts.js';

const summary: Json = {
  id: { type: 'string', format: 'uuid' },
  name: text,
  status: { type: 'string', enum: Object.keys(RUN_MOVES) },
  statusReason: nullable(text),
  statusChangedAt: time,
  attempt: integer,
  restartsLeft: integer,
  workersWanted: integer,
  createdAt: time,
  startedAt: nullable(time),
  finishedAt: nullable(time),
  parameterCount: integer,
  progress: ref('Progress'),
};

const measures = { type: 'object', additionalProperties: nullable(number) };
const progress = {
  phase: text,
  round: integer,
  totalRounds: integer,
  epoch: integer,
  totalEpochs: number,
  loss: nullable(number),
  accuracy: nullable(number),
  values: measures,
  validation: nullable({ type: 'object', properties: { round: integer, examples: integer, values: measures } }),
  examplesPerSecond: nullable(number),
  etaSeconds: nullable(number),
  workers: integer,
  replicas: integer,
  waitingFor: nullable(text),
};
const result = {
  rounds: integer,
  loss: nullable(number),
  accuracy: nullable(number),
  meanAbsoluteError: nullable(number),
  meanSquaredError: nullable(number),
  values: measures,
  weightsRound: integer,
  examplesPerSecond: number,
  trainedExamples: number,
  trainingMs: number,
  weightsSha256: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  weightsUrl: nullable(text),
};
const ledger = {
  committedRounds: integer,
  committedExamples: number,
  droppedExamples: number,
  expectedExamples: number,
  refusedFrames: number,
  refusedConnections: number,
};

/** What a run was before. */
function historySchemas(): Json {
  return {
    Attempt: {
      type: 'object',
      properties: {
        number: integer,
        createdAt: time,
        startedAt: nullable(time),
        endedAt: nullable(time),
        endCause: nullable(text),
        endReason: nullable(text),
        endRound: nullable(integer),
        fromRound: integer,
        parentNumber: nullable(integer),
        parentRunId: nullable(text),
      },
    },
    Checkpoint: {
      type: 'object',
      properties: {
        attempt: integer,
        round: integer,
        totalRounds: integer,
        bytes: integer,
        sha256: text,
        loss: nullable(number),
        reason: text,
        state: text,
        createdAt: time,
      },
    },
  };
}

const listOf = (items: Json): Json => ({ type: 'array', items });
const cells = { description: 'In the order of `columns`.', type: 'array', items: {} };
const image = Object.assign({ description: 'A PNG as a data address.' }, nullable(text));

/** As in GraphQL, which says what each means. */
function predictionSchemas(): Json {
  const confusion = { type: 'object', properties: { truth: text, prediction: text, count: integer } };
  const parts = { precision: nullable(number), recall: nullable(number), f1: nullable(number) };
  const score = { type: 'object', properties: { label: text, count: integer, predicted: integer, ...parts } };
  const example = { example: integer, image, cells };
  const labels = { step: nullable(integer), truth: text, prediction: text, probability: nullable(number) };
  const classes = {
    type: 'object',
    properties: {
      kind: { const: 'classes' },
      name: text,
      count: integer,
      accuracy: number,
      classes: integer,
      labels: listOf(text),
      matrix: nullable(listOf(listOf(integer))),
      confusions: listOf(confusion),
      scores: listOf(score),
      wrongCount: integer,
      columns: listOf(text),
      wrong: listOf({ type: 'object', properties: { ...example, ...labels } }),
    },
  };
  const values = {
    type: 'object',
    properties: {
      kind: { const: 'values' },
      name: text,
      count: integer,
      meanAbsoluteError: nullable(number),
      rootMeanSquaredError: nullable(number),
      rSquared: nullable(number),
      points: listOf({ type: 'array', items: number, minItems: 2, maxItems: 2 }),
      columns: listOf(text),
      worst: listOf({ type: 'object', properties: { ...example, truth: number, prediction: number } }),
    },
  };
  const none = { type: 'object', properties: { kind: { const: 'none' }, name: text, reason: text } };
  return {
    Predictions: {
      type: 'object',
      properties: {
        state: { type: 'string', enum: Object.keys(PREDICTIONS_STATES) },
        reason: nullable(text),
        examples: nullable(integer),
        measured: nullable(integer),
        split: nullable(text),
        outputs: listOf({ oneOf: [classes, values, none] }),
      },
    },
  };
}

/** @param spec the JSON schema of a run spec */
export function schemas(spec: Json): Json {
  return {
    RunSpec: spec,
    RunSummary: { type: 'object', properties: summary },
    Run: {
      type: 'object',
      properties: {
        ...summary,
        spec: { type: 'object', description: 'With every default filled in.' },
        ledger: ref('Ledger'),
        result: nullable(ref('Result')),
      },
    },
    Progress: { type: 'object', properties: progress },
    Ledger: { type: 'object', properties: ledger },
    Result: { type: 'object', properties: result },
    Event: {
      type: 'object',
      properties: { seq: integer, type: text, message: text, data: { type: 'object' }, at: time, attempt: integer },
    },
    ...historySchemas(),
    ...predictionSchemas(),
    ...datasetSchemas(),
    Problem: {
      type: 'object',
      description: 'RFC 9457.',
      required: ['type', 'title', 'status', 'code', 'detail'],
      properties: {
        type: text,
        title: text,
        status: integer,
        code: { type: 'string', enum: Object.keys(FAULTS) },
        detail: text,
        issues: { type: 'array', items: { type: 'object', properties: { path: text, message: text } } },
      },
    },
  };
}
