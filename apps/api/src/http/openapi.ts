/** The OpenAPI 3.1 document. The run spec comes from its zod schema (libs/spec); a test compares the paths with the router's. */
import { specJsonSchema } from '@paceline/spec';
import { RUN_MOVES } from '@paceline/jobs';
import { FAULTS } from '../fault.js';

type Json = Record<string, unknown>;

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });
const json = (schema: Json, description: string): Json => ({ description, content: { 'application/json': { schema } } });
const problem = (description: string): Json => ({ description, content: { 'application/problem+json': { schema: ref('Problem') } } });
const nullable = (schema: Json): Json => ({ anyOf: [schema, { type: 'null' }] });
const text = { type: 'string' };
const integer = { type: 'integer' };
const number = { type: 'number' };
const time = { type: 'string', format: 'date-time' };
const list = (name: string): Json => ({ type: 'object', properties: { items: { type: 'array', items: ref(name) } } });

const query = (name: string, description: string, schema: Json): Json => ({ name, in: 'query', required: false, description, schema });
const runId: Json = { name: 'id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } };
const first = query('first', 'Size of the page.', { type: 'integer', minimum: 0, maximum: 100 });
const after = query('after', 'nextCursor of the page before.', text);

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

const refusals: Json = {
  '401': problem('No key, or a wrong one.'),
  '429': problem('Too many wrong keys, or too much at once; see Retry-After.'),
  '503': problem('PostgreSQL or Redis is away; see Retry-After.'),
};

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
          '201': { ...json(ref('Run'), 'The run, QUEUED.'), ...replayed },
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
          '200': json(
            {
              type: 'object',
              properties: { items: { type: 'array', items: ref('RunSummary') }, nextCursor: nullable(text), totalCount: integer },
            },
            'A page.',
          ),
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
        responses: { '200': json(ref('Run'), 'The run.'), '404': problem('No such run in your team.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/cancel': {
      post: {
        operationId: 'cancelRun',
        summary: 'End a run within 10 s.',
        parameters: [runId],
        responses: {
          '202': json(ref('Run'), 'It is being cancelled.'),
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
        responses: { '200': json(list('Attempt'), 'All of them.'), '404': problem('No such run.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/checkpoints': {
      get: {
        operationId: 'listRunCheckpoints',
        summary: 'Checkpoints of a run, newest first.',
        parameters: [runId],
        responses: { '200': json(list('Checkpoint'), 'Those that are kept.'), '404': problem('No such run.'), ...refusals },
      },
    },
    '/api/v1/runs/{id}/events': {
      get: {
        operationId: 'listRunEvents',
        summary: 'Events of a run, oldest first.',
        parameters: [runId, first, after],
        responses: {
          '200': json(
            { type: 'object', properties: { items: { type: 'array', items: ref('Event') }, nextCursor: nullable(text) } },
            'A page.',
          ),
          '404': problem('No such run.'),
          ...refusals,
        },
      },
    },
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
  };
}

/** Requests that change a run: the same answers everywhere. */
function changePaths(): Json {
  const goesOn = ['resume', 'extend'];
  const change = (name: string, operationId: string, summary: string, body?: Json, isKeyed = false): Json => ({
    [`/api/v1/runs/{id}/${name}`]: {
      post: {
        operationId,
        summary,
        parameters: isKeyed ? [runId, idempotencyKey] : [runId],
        ...(body
          ? { requestBody: { required: false, content: { 'application/json': { schema: { type: 'object', properties: body } } } } }
          : {}),
        responses: {
          '202': { ...json(ref('Run'), 'It is done, or under way.'), ...(isKeyed ? replayed : {}) },
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
    ...change('resume', 'resumeRun', 'Go on from the last checkpoint.', { servers: integer }),
    ...change('scale', 'scaleRun', 'How many workers may hold a seat.', { workers: integer }),
    ...change('extend', 'extendRun', 'So many rounds or epochs more.', { rounds: integer, epochs: integer }, true),
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

function schemas(spec: Json): Json {
  const progress = {
    phase: text,
    round: integer,
    totalRounds: integer,
    epoch: integer,
    totalEpochs: number,
    loss: nullable(number),
    accuracy: nullable(number),
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

/** By `METHOD /route/:id`: the names of the query parameters, and whether each may stand more than once. */
export function queryParametersOf(): ReadonlyMap<string, ReadonlyMap<string, boolean>> {
  const table = new Map<string, ReadonlyMap<string, boolean>>();
  for (const [path, operations] of Object.entries({ ...runPaths(), ...runByIdPaths(), ...otherPaths() })) {
    for (const [method, operation] of Object.entries(operations as Record<string, { parameters?: (typeof status)[] }>)) {
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
      description: 'Distributed training of TensorFlow.js models. GraphQL at /graphql offers everything; REST offers runs.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ apiKey: [] }],
    paths: { ...runPaths(), ...runByIdPaths(), ...otherPaths() },
    components: { securitySchemes: { apiKey: { type: 'http', scheme: 'bearer', bearerFormat: 'pcl_...' } }, schemas: schemas(spec) },
  };
}
