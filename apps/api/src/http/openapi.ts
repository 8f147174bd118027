/** The OpenAPI 3.1 document. Bodies come from their zod schemas (bodies.ts, libs/spec); tests compare them with answers, and the paths with the router's. */
import { specJsonSchema } from '@paceline/spec';
import { EXPORT_FORMATS } from '@paceline/models';
import { RUN_MOVES } from '@paceline/control-plane';
import type { z } from 'zod';
import {
  Attempts,
  Checkpoints,
  EventPage,
  Extend,
  jsonSchemaOf,
  namedSchemas,
  Predictions,
  Resume,
  Run,
  RunPage,
  Scale,
  Trace,
  type Json,
} from './bodies.js';
import { datasetPaths } from './openapi-datasets.js';
import { weightPaths } from './openapi-models.js';
import { after, answer, first, integer, problem, query, ref, refusals, text } from './openapi-parts.js';

const runId: Json = { name: 'id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } };
const idempotencyKey: Json = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  schema: { type: 'string', pattern: '^[!-~]{1,200}$' },
  description:
    'The same request under the same key is carried out once, and later answers have the header Idempotent-Replayed: true. Kept for 30 days.',
};
const replayed: Json = {
  headers: {
    'Idempotent-Replayed': {
      description: 'The answer is that of an earlier request with the same Idempotency-Key.',
      schema: { type: 'string', enum: ['true'] },
    },
  },
};

const status = query('status', 'Only these: repeated, or with commas between. `active` is all that are not over.', {
  type: 'array',
  items: { type: 'string', enum: [...Object.keys(RUN_MOVES), 'active'] },
});

const unchanged: Json = {
  '304': { description: 'Nothing has changed since the answer whose ETag was sent as If-None-Match.' },
};

function runPaths(): Json {
  return {
    '/api/v1/runs': {
      post: {
        operationId: 'createRun',
        summary: 'Start a run.',
        parameters: [
          idempotencyKey,
          query('clusterSpecId', 'A cluster spec of the team.', { type: 'string', format: 'uuid' }),
          query('resumeFromRun', 'Begin with a checkpoint of this run; what the body does not say is as in its spec.', {
            type: 'string',
            format: 'uuid',
          }),
          query('resumeFromRound', 'Committed rounds in it; by default the newest.', integer),
        ],
        requestBody: { required: true, content: { 'application/json': { schema: ref('RunSpec') } } },
        responses: {
          '201': { ...answer(Run, 'The run, QUEUED.'), ...replayed },
          '404': problem('No such cluster spec.'),
          '409': problem('The idempotency key was used for another request, or a limit of the team is reached (`LIMIT_REACHED`).'),
          '422': problem('The spec is wrong; `issues` names every field.'),
          ...refusals,
        },
      },
      get: {
        operationId: 'listRuns',
        summary: 'Runs of the team, newest first.',
        parameters: [first, after, status, query('name', 'A part of the name.', text)],
        responses: {
          ...unchanged,
          '200': answer(RunPage, 'A page.'),
          '422': problem('A bad cursor or number.'),
          ...refusals,
        },
      },
    },
  };
}

function runByIdPaths(): Json {
  return {
    '/api/v1/runs/{id}': {
      get: {
        operationId: 'getRun',
        summary: 'One run.',
        parameters: [runId],
        responses: { ...unchanged, '200': answer(Run, 'The run.'), '404': problem('No such run in your team.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/cancel': {
      post: {
        operationId: 'cancelRun',
        summary: 'End a run within 10 s.',
        parameters: [runId],
        responses: {
          '202': answer(Run, 'It is being cancelled.'),
          '404': problem('No such run.'),
          '409': problem('It is over already.'),
          ...refusals,
        },
      },
    },
    ...changePaths(),
    '/api/v1/runs/{id}/attempts': {
      get: {
        operationId: 'listRunAttempts',
        summary: 'Attempts of a run, newest first.',
        parameters: [runId],
        responses: { ...unchanged, '200': answer(Attempts, 'All of them.'), '404': problem('No such run.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/checkpoints': {
      get: {
        operationId: 'listRunCheckpoints',
        summary: 'Checkpoints of a run, newest first.',
        parameters: [runId],
        responses: { ...unchanged, '200': answer(Checkpoints, 'Those that are kept.'), '404': problem('No such run.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/events': {
      get: {
        operationId: 'listRunEvents',
        summary: 'Events of a run, oldest first.',
        parameters: [runId, first, after],
        responses: {
          ...unchanged,
          '200': answer(EventPage, 'A page.'),
          '404': problem('No such run.'),
          '422': problem('A bad cursor or number.'),
          ...refusals,
        },
      },
    },
    ...tracePaths(),
    ...modelPaths(),
  };
}

function tracePaths(): Json {
  return {
    '/api/v1/runs/{id}/trace': {
      post: {
        operationId: 'traceRun',
        summary:
          'Where the time of the next rounds goes, over all processes of the run: a trace for Chrome and Perfetto. It takes some seconds.',
        parameters: [runId],
        requestBody: { required: false, content: { 'application/json': { schema: jsonSchemaOf(Trace) } } },
        responses: {
          '200': { description: 'The trace (JSON trace event format).', content: { 'application/json': { schema: { type: 'object' } } } },
          '404': problem('No such run.'),
          '409': problem(
            'The run is not RUNNING or is traced already, too much is traced, or no round was seen whole by all of its processes.',
          ),
          '422': problem('The number of rounds is wrong.'),
          ...refusals,
        },
      },
    },
  };
}

/** What a run has learned. */
function modelPaths(): Json {
  return {
    '/api/v1/runs/{id}/weights': {
      get: {
        operationId: 'getRunWeights',
        summary: 'The trained weights (safetensors).',
        parameters: [runId],
        responses: {
          '200': { description: 'The file.', content: { 'application/octet-stream': {} } },
          '404': problem('No such run, no result yet, or the file is on another host.'),
          ...refusals,
        },
      },
    },
    '/api/v1/runs/{id}/predictions': {
      get: {
        operationId: 'getRunPredictions',
        summary: 'Predictions of the result for the evaluation split: confusions and wrong examples, or predicted values beside true ones.',
        parameters: [runId],
        responses: {
          ...unchanged,
          '200': answer(Predictions, 'READY, or UNAVAILABLE with the reason.'),
          '202': answer(Predictions, 'COMPUTING: ask again after Retry-After.'),
          '404': problem('No such run.'),
          '409': problem('The run has not SUCCEEDED.'),
          ...refusals,
        },
      },
    },
    '/api/v1/runs/{id}/export': {
      get: {
        operationId: 'exportRun',
        summary: 'The trained model as a zip archive with its card and its preprocessing: of the result, or of a kept checkpoint.',
        parameters: [
          runId,
          query('format', 'The form of the files.', { type: 'string', enum: [...EXPORT_FORMATS], default: 'tfjs' }),
          query('round', 'Committed rounds of a checkpoint. Left out: the result, or the newest checkpoint.', {
            type: 'integer',
            minimum: 0,
          }),
        ],
        responses: {
          '200': { description: 'The archive.', content: { 'application/zip': {} } },
          '404': problem('No such run, no weights yet, or they are on another host.'),
          '422': problem('The form cannot hold a layer of the model; its path says which.'),
          ...refusals,
        },
      },
    },
  };
}

/** Requests that change a run: the same answers everywhere. */
function changePaths(): Json {
  const goesOn = ['resume', 'extend'];
  const change = (name: string, operationId: string, summary: string, body?: z.ZodType, isKeyed = false): Json => ({
    [`/api/v1/runs/{id}/${name}`]: {
      post: {
        operationId,
        summary,
        parameters: isKeyed ? [runId, idempotencyKey] : [runId],
        ...(body ? { requestBody: { required: false, content: { 'application/json': { schema: jsonSchemaOf(body) } } } } : {}),
        responses: {
          '202': { ...answer(Run, 'It is done, or under way.'), ...(isKeyed ? replayed : {}) },
          '404': problem('No such run.'),
          '409': problem(
            `Its status does not allow it${isKeyed ? ', the idempotency key was used for another request' : ''}${goesOn.includes(name) ? ', or a limit of the team is reached (`LIMIT_REACHED`)' : ''}.`,
          ),
          '422': problem('A number is wrong.'),
          ...refusals,
        },
      },
    },
  });
  return {
    ...change('pause', 'pauseRun', 'Write a checkpoint and stand still, within 10 s.'),
    ...change('resume', 'resumeRun', 'Go on from the last checkpoint.', Resume),
    ...change(
      'scale',
      'scaleRun',
      'How many workers may hold a seat; where workers hold the shards, how many hold them after the next checkpoint.',
      Scale,
    ),
    ...change('extend', 'extendRun', 'So many rounds or epochs more.', Extend, true),
  };
}

function otherPaths(): Json {
  return {
    '/api/v1/openapi.json': {
      get: { operationId: 'getOpenApi', security: [], summary: 'This document.', responses: { '200': { description: 'OpenAPI 3.1.' } } },
    },
    '/healthz': {
      get: { operationId: 'getHealth', security: [], summary: 'The process answers.', responses: { '200': { description: 'It does.' } } },
    },
    '/readyz': {
      get: {
        operationId: 'getReadiness',
        security: [],
        summary: 'PostgreSQL and Redis answer.',
        responses: { '200': { description: 'They do.' }, '503': { description: 'One does not.' } },
      },
    },
    '/metrics': {
      get: {
        operationId: 'getMetrics',
        summary: 'Prometheus metrics; without a key from the same host.',
        responses: { '200': { description: 'Text format 0.0.4.' }, '401': problem('No key.') },
      },
    },
  };
}

interface Operation {
  readonly parameters?: readonly (typeof status)[];
  readonly responses: Json;
}

function allPaths(): Readonly<Record<string, Readonly<Record<string, Operation>>>> {
  const paths = Object.assign({}, runPaths(), runByIdPaths(), datasetPaths(), weightPaths(), otherPaths()) as ReturnType<typeof allPaths>;
  const changes = Object.values(paths).flatMap((operations) => [operations['post'], operations['put']]);
  for (const change of changes) if (change) Object.assign(change.responses, { '403': problem('The key may only look.') });
  return paths;
}

/** By `METHOD /route/:id`: the names of the query parameters, and whether each may stand more than once. */
export function queryParametersOf(): ReadonlyMap<string, ReadonlyMap<string, boolean>> {
  const table = new Map<string, ReadonlyMap<string, boolean>>();
  for (const [path, operations] of Object.entries(allPaths())) {
    for (const [method, operation] of Object.entries(operations)) {
      const parameters = (operation.parameters ?? []).filter((parameter) => parameter['in'] === 'query');
      table.set(
        `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`,
        new Map(parameters.map(({ name, schema }) => [name as string, (schema as { type?: string }).type === 'array'])),
      );
    }
  }
  return table;
}

/** @param specSchema JSON Schema of the run spec */
export function openApiDocument(specSchema: Json = specJsonSchema()): Json {
  const { $schema: _dialect, ...spec } = specSchema;
  return {
    openapi: '3.1.1',
    info: {
      title: 'Paceline',
      version: '1',
      description:
        'Distributed training of TensorFlow.js models. GraphQL at /graphql offers everything; REST offers runs and the bytes of datasets.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ apiKey: [] }],
    paths: allPaths(),
    components: {
      securitySchemes: { apiKey: { type: 'http', scheme: 'bearer', bearerFormat: 'pcl_...' } },
      schemas: { RunSpec: spec, ...namedSchemas() },
    },
  };
}
