/**
 * Whatever is sent, the answer has a code that somebody chose: no 500, no INTERNAL_SERVER_ERROR, and soon. The operations come from the
 * GraphQL schema and from the routes of the running api, so a new one is covered by itself.
 *
 *     PACELINE_FAULT_CASES=200 PACELINE_FAULT_SEED=7 npx vitest run --config test/vitest.config.ts test/api/no-untyped-fault.test.ts
 */
import { GraphQLSchemaHost } from '@nestjs/graphql';
import fc from 'fast-check';
import { getNamedType, isNonNullType, isObjectType } from 'graphql';
import { request as httpRequest } from 'node:http';
import { createConnection } from 'node:net';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { createLogger } from '@paceline/runtime';
import { Database } from '../../apps/api/src/database/database.js';
import { createErrorFormatter } from '../../apps/api/src/graphql/format-error.js';
import { toFault } from '../../apps/api/src/http/problem.filter.js';
import { buildSchema } from '../../apps/api/src/reference.js';
import { ControlPlane, CREATE_RUN, createRun, type Caller } from './services.js';
import { CURSORS, cursor, ids, oddJson, oddText, topology, valueOf } from './odd-input.js';
import { operationOf, type Operation } from './operations.js';
import { routesOf } from './routes.js';

/** Of each operation: few in the suite, many in the soak. */
const CASES = Number(process.env['PACELINE_FAULT_CASES'] ?? (process.env['PACELINE_SOAK'] === '1' ? 400 : 10));
/** The suite tries the same cases each time, so that it fails for a change and not by chance; the soak tries new ones. */
const SEED = Number(process.env['PACELINE_FAULT_SEED'] ?? (process.env['PACELINE_SOAK'] === '1' ? Date.now() % 2 ** 31 : 1));
/** A machine that trains beside it may be slow; what hangs is not answered at all. */
const ANSWER_WITHIN_MS = 15_000;

let plane: ControlPlane;
let caller: Caller & { teamId: string };
beforeAll(async () => {
  console.log(`${CASES} cases of each operation, PACELINE_FAULT_SEED=${SEED}`);
  plane = await ControlPlane.start();
  caller = await plane.team('fuzzers');
  const runId = await createRun(caller);
  // Over, so that a subscription to it ends.
  await plane.api.app.get(Database).run.update({ where: { id: runId }, data: { status: 'CANCELLED' } });
  const { data } = await caller.gql(
    'mutation { createClusterSpec(input: { name: "c" }) { ... on CreateClusterSpecSuccess { clusterSpec { id } } } }',
  );
  ids.push(runId, data.createClusterSpec.clusterSpec.id, caller.teamId);
});
afterAll(() => plane?.stop());

/** One layer, with these fields in it. */
const topologyWith = (fields: object) => ({
  model: { topology: { class_name: 'Functional', config: { layers: [{ class_name: 'Dense', config: { units: 10 }, ...fields }] } } },
});

const schema = await buildSchema();
const roots = [
  ['query', schema.getQueryType()!],
  ['mutation', schema.getMutationType()!],
  ['subscription', schema.getSubscriptionType()!],
] as const;
/** Every root field, and every field below one that takes arguments itself (`run.events`). */
const operations = roots.flatMap(([kind, type]) =>
  Object.values(type.getFields()).flatMap((field) => {
    const below = getNamedType(field.type);
    const nested = kind === 'query' && isObjectType(below) ? Object.values(below.getFields()).filter((inner) => inner.args.length > 0) : [];
    return [operationOf(kind, field, schema), ...nested.map((inner) => operationOf(kind, field, schema, inner.name))];
  }),
);

const check = async (arbitrary: fc.Arbitrary<unknown>, send: (value: never) => Promise<void>, cases = CASES) =>
  fc.assert(
    fc.asyncProperty(arbitrary, (value) => send(value as never)),
    { seed: SEED, numRuns: cases, endOnFailure: true, interruptAfterTimeLimit: 100_000 },
  );
const variablesOf = ({ variables }: Operation) =>
  fc.record(Object.fromEntries(variables.map(({ name, type, argument }) => [name, valueOf(type, argument)])), {
    requiredKeys: variables.filter(({ type }) => isNonNullType(type)).map(({ name }) => name),
  });
const shown = (value: unknown): string => JSON.stringify(value)?.slice(0, 600) ?? String(value);

interface Reply {
  readonly status: number;
  readonly type: string;
  readonly text: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

/** Raw, as a client library would refuse to send most of this. */
function send(method: string, path: string, body?: string, headers: Record<string, string> = {}): Promise<Reply> {
  const { hostname, port } = new URL(plane.api.url);
  const startedAt = performance.now();
  return new Promise((resolve, reject) => {
    const asked = httpRequest(
      { hostname, port, method, path, headers: { authorization: `Bearer ${caller.key}`, ...headers } },
      (answer) => {
        const parts: Buffer[] = [];
        answer.on('data', (part: Buffer) => parts.push(part));
        answer.once('end', () => {
          expect(performance.now() - startedAt, `${method} ${path.slice(0, 200)}`).toBeLessThan(ANSWER_WITHIN_MS);
          resolve({
            status: answer.statusCode!,
            type: answer.headers['content-type'] ?? '',
            text: Buffer.concat(parts).toString(),
            headers: answer.headers,
          });
        });
      },
    );
    asked.setTimeout(ANSWER_WITHIN_MS, () =>
      asked.destroy(new Error(`no answer within ${ANSWER_WITHIN_MS} ms: ${method} ${path.slice(0, 200)}`)),
    );
    asked.once('error', reject);
    asked.end(body);
  });
}

const errorCodesOf = (text: string): string[] =>
  ((JSON.parse(text) as { errors?: { extensions?: { code?: string } }[] }).errors ?? []).map(
    ({ extensions }) => extensions?.code ?? 'none',
  );

describe('over GraphQL', () => {
  it.each(operations.map((operation) => [`${operation.kind} ${operation.name}`, operation] as const))('%s', async (_, operation) => {
    await check(variablesOf(operation), async (variables) => {
      const reply = await send('POST', '/graphql', JSON.stringify({ query: operation.text, variables }), {
        'content-type': 'application/json',
      });
      const said = `${reply.text.slice(0, 600)} for ${shown(variables)}`;
      for (const code of errorCodesOf(reply.text)) expect(['INTERNAL_SERVER_ERROR', 'none'], said).not.toContain(code);
      expect(reply.status, said).not.toBe(500);
    });
  });

  it('subscriptions over WebSocket', async () => {
    const socket = new WebSocket(`${plane.api.url.replace('http', 'ws')}/graphql`, 'graphql-transport-ws');
    await once(socket, 'open');
    const next = async (): Promise<{ type: string; payload?: unknown }> =>
      JSON.parse(String((await once(socket, 'message', { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) }))[0])) as never;
    const ack = next();
    socket.send(JSON.stringify({ type: 'connection_init', payload: { authorization: `Bearer ${caller.key}` } }));
    expect((await ack).type).toBe('connection_ack');
    let id = 0;
    for (const operation of operations.filter(({ kind }) => kind === 'subscription')) {
      await check(variablesOf(operation), async (variables) => {
        const message = JSON.stringify({ id: `s${id++}`, type: 'subscribe', payload: { query: operation.text, variables } });
        fc.pre(message.length < 60_000); // longer ones close the socket
        const messages: { id?: string; type: string; payload?: unknown }[] = [];
        const over = new Promise<void>((resolve, reject) => {
          const timer = setTimeout(() => reject(new Error(`no end of ${shown(variables)}`)), ANSWER_WITHIN_MS);
          const take = (data: unknown): void => {
            const received = JSON.parse(String(data)) as (typeof messages)[number];
            messages.push(received);
            if (received.type !== 'error' && received.type !== 'complete') return;
            clearTimeout(timer);
            socket.off('message', take);
            resolve();
          };
          socket.on('message', take);
        });
        socket.send(message);
        await over;
        expect(JSON.stringify(messages), shown(variables)).not.toContain('INTERNAL_SERVER_ERROR');
        expect(socket.readyState).toBe(WebSocket.OPEN);
      });
    }
    socket.close();
    await once(socket, 'close');
  });

  it('a body of any JSON', async () => {
    await check(oddJson(), async (body) => {
      const reply = await send('POST', '/graphql', JSON.stringify(body), { 'content-type': 'application/json' });
      expect(reply.status, `${shown(body)}: ${reply.text.slice(0, 300)}`).toBeLessThan(500);
      expect(reply.text).not.toContain('INTERNAL_SERVER_ERROR');
    });
  });
});

it('over REST: every route with any path, query, body and headers', async () => {
  const instance = plane.api.app.getHttpAdapter().getInstance() as { printRoutes(options: object): string };
  const routes = routesOf(instance.printRoutes({ commonPrefix: false })).filter((route) => !route.endsWith('/graphql'));
  expect(routes.length).toBeGreaterThan(15);
  const { paths } = JSON.parse((await send('GET', '/api/v1/openapi.json')).text) as {
    paths: Record<
      string,
      Record<
        string,
        { parameters?: { name: string; in: string }[]; requestBody?: { content: Record<string, { schema: { properties?: object } }> } }
      >
    >;
  };
  const odd = () => oddText().map((text) => encodeURIComponent(text.toWellFormed()).slice(0, 3000));
  /** A parameter with a value that mostly gets past its first check. */
  const named = (name: string): fc.Arbitrary<[string, string]> =>
    fc.tuple(
      fc.constant(name),
      name === 'after'
        ? fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...CURSORS) }, odd())
        : name === 'status'
          ? fc.constantFrom('RUNNING', 'active', 'QUEUED,RUNNING', 'x')
          : odd(),
    );
  for (const route of routes) {
    const [method, path] = route.split(' ') as [string, string];
    const documented = paths[path.replace(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()];
    const names = (documented?.parameters ?? []).filter((parameter) => parameter.in === 'query').map(({ name }) => name);
    const fields = Object.keys(
      documented?.requestBody?.content['application/json']?.schema.properties ?? {
        name: 1,
        seed: 1,
        modelTopology: 1,
        optimizer: 1,
        length: 1,
      },
    );
    const arbitrary = fc.record({
      id: fc.oneof({ weight: 3, arbitrary: fc.constant(ids[0]!) }, odd(), fc.constantFrom('%zz', '%ff', '%00', '.', '%2e%2e%2f')),
      query: fc.array(fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...names, 'first').chain(named) }, odd().chain(named)), {
        maxLength: 3,
      }),
      body: fc.oneof(
        {
          weight: 4,
          arbitrary: fc.dictionary(fc.constantFrom(...fields), oddJson(), { maxKeys: 3 }).map((value) => JSON.stringify(value)),
        },
        { weight: 2, arbitrary: topology().map((model) => JSON.stringify({ model: { topology: model } })) },
        oddJson().map((value) => JSON.stringify(value)),
        fc.constantFrom('', '{', 'null', '"', '\0', '{"__proto__":{}}'),
      ),
      type: fc.constantFrom('application/json', 'application/json', 'application/json', 'text/plain', 'x'),
      key: fc.option(fc.oneof(fc.constantFrom('k', 'x'.repeat(201), ' ', 'ÿ'), fc.uuid())),
    });
    await check(
      arbitrary,
      async ({ id, query, body, type, key }: { id: string; query: [string, string][]; body: string; type: string; key: string | null }) => {
        const target =
          path.replace(/:\w+|\*/g, id) + (query.length > 0 ? `?${query.map(([name, value]) => `${name}=${value}`).join('&')}` : '');
        const reply = await send(method, target, method === 'GET' ? undefined : body, {
          ...(method === 'GET' ? {} : { 'content-type': type, 'content-length': String(Buffer.byteLength(body)) }),
          ...(key === null ? {} : { 'idempotency-key': key }),
        });
        const said = `${route} ${shown({ target, body, type, key })}: ${reply.status} ${reply.text.slice(0, 300)}`;
        expect(reply.status, said).not.toBe(500);
        expect(reply.headers['x-content-type-options'], said).toBe('nosniff');
        if (reply.status >= 400 && !['/readyz'].includes(path)) {
          expect(reply.type, said).toContain('application/problem+json');
          expect(JSON.parse(reply.text), said).toMatchObject({ code: expect.stringMatching(/^[A-Z_]+$/), status: reply.status });
        }
      },
    );
  }
});

describe('what was an untyped fault once has a code and a path', () => {
  const EVENTS = 'query($id: ID!, $after: String) { run(id: $id) { events(after: $after) { edges { cursor } } } }';
  const RUNS = 'query($after: String, $status: [RunStatus!]) { runs(after: $after, status: $status) { totalCount } }';
  it.each<[string, string, () => object, string | null]>([
    ['a cursor with 36 letters for a UUID', RUNS, () => ({ after: cursor('runs', 1, 'a'.repeat(36)) }), 'INVALID_INPUT'],
    ['a cursor with 36 dashes for a UUID', RUNS, () => ({ after: cursor('runs', 1, '-'.repeat(36)) }), 'INVALID_INPUT'],
    ['a cursor of the year 33658', RUNS, () => ({ after: cursor('runs', 999_999_999_999_999, ids[0]) }), 'INVALID_INPUT'],
    ['an event beyond 32 bits', EVENTS, () => ({ id: ids[0], after: cursor('events', '9999999999') }), 'INVALID_INPUT'],
    ['the first event beyond 32 bits', EVENTS, () => ({ id: ids[0], after: cursor('events', 2 ** 31) }), 'INVALID_INPUT'],
    ['the last event within 32 bits', EVENTS, () => ({ id: ids[0], after: cursor('events', 2 ** 31 - 1) }), null],
    ['one status a hundred thousand times', RUNS, () => ({ status: Array.from({ length: 100_000 }, () => 'RUNNING') }), null],
    ['a subscription by HTTP', 'subscription { runEvents(runId: "x") { seq } }', () => ({}), 'BAD_REQUEST'],
  ])('%s', async (_, query, variables, code) => {
    const { errors } = await caller.gql(query, variables());
    expect(errors?.[0]?.extensions.code ?? null, JSON.stringify(errors)).toBe(code);
  });

  it.each<[string, object | null, string, RegExp]>([
    ['inbound_nodes that is no list', topologyWith({ inbound_nodes: { a: 1 } }), 'model.topology.config.layers.0.inbound_nodes', /list/],
    ['U+0000 in a text of a topology', topologyWith({ config: { x: '\0' } }), 'model.topology.config.layers.0.config.x', /U\+0000/],
    [
      'half a character in a key of a topology',
      topologyWith({ config: { '\ud800': 1 } }),
      'model.topology.config.layers.0.config',
      /half a character/,
    ],
    ['half a character in a name', { name: '\udfff' }, 'name', /halves/],
    ['a body of null', null, '(spec)', /object/],
  ])('%s', async (_, spec, path, message) => {
    const { status, body } = await caller.post('/api/v1/runs').set('content-type', 'application/json').send(JSON.stringify(spec));
    expect([status, body.code]).toEqual([422, 'INVALID_INPUT']);
    expect(body.issues).toEqual([{ path, message: expect.stringMatching(message) }]);
  });

  it('a name of Object.prototype for an activation or a regularizer, without a word of what is inside', async () => {
    for (const config of [
      { activation: 'toString' },
      { kernel_regularizer: 'constructor' },
      { kernel_initializer: { class_name: 'valueOf', config: {} } },
      { activation: 'reluu' },
    ]) {
      const layers = [{ class_name: 'Dense', config: { units: 10, batch_input_shape: [null, 784], ...config } }];
      const { status, body } = await caller
        .post('/api/v1/runs')
        .send({ model: { topology: { class_name: 'Sequential', config: { layers } } } });
      expect([status, body.issues?.[0]?.message], JSON.stringify(config)).toEqual([
        422,
        expect.stringMatching(/^(?:there is no|must be one of) /),
      ]);
    }
  });

  it('U+0000 in a name that is looked for, and what PostgreSQL says where nobody has looked', async () => {
    const asked = await caller.gql(
      'query($id: ID!, $name: String!) { node(id: $id) { id } dataset(name: $name) { id } runsMeant(reference: $name) { id } modelAliases(name: $name) { name } }',
      { id: 'a\0', name: 'a\0' },
    );
    expect(asked).toMatchObject({ errors: undefined, data: { node: null, dataset: null, runsMeant: [], modelAliases: [] } });
    const database = plane.api.app.get(Database);
    const teamId = caller.teamId;
    const log = createLogger('api');
    for (const unguarded of [
      database.dataset.findUnique({ where: { name: 'a\0' } }),
      database.$queryRaw`SELECT 1 FROM "Run" WHERE "name" LIKE ${'\0%'}`,
      database.datasetImport.create({ data: { teamId, name: 'x', createdBy: teamId, request: { a: ['\0'] } } }),
    ]) {
      const error: unknown = await unguarded.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(toFault(error, log)).toMatchObject({ code: 'INVALID_INPUT', message: expect.stringContaining('U+0000') });
      expect(createErrorFormatter(log)({ message: 'x' }, error).extensions?.['code']).toBe('INVALID_INPUT');
    }
  });

  it('server-sent events are refused with where the events are', async () => {
    for (const path of ['/graphql', `/api/v1/runs/${ids[0]}/events`]) {
      const { status, text } = await (
        path === '/graphql' ? caller.post(path).send({ query: '{ viewer { isAdmin } }' }) : caller.get(path)
      ).set('accept', 'text/event-stream');
      expect([path, status, text.includes('WebSocket')]).toEqual([path, 406, true]);
    }
  });

  it('a query parameter twice, and one that nobody knows', async () => {
    const twice = await caller.get('/api/v1/runs?status=RUNNING&status=QUEUED,active&first=1');
    expect([twice.status, twice.body.totalCount]).toEqual([200, expect.any(Number)]);
    for (const [query, path] of [
      ['first=1&first=2', 'first'],
      ['fist=1', 'fist'],
      ['__proto__=1', '__proto__'],
    ]) {
      const { status, body } = await caller.get(`/api/v1/runs?${query}`);
      expect([status, body.issues?.[0]?.path], query).toEqual([422, path]);
    }
    expect((await caller.get('/api/v1/runs?fist=1')).body.issues[0].message).toContain('first, after, status');
  });

  it.each(['\0', '\ud800', ' ', '', 'é', 'x'.repeat(201)])('the idempotency key %j', async (idempotencyKey) => {
    const { data } = await caller.gql(CREATE_RUN, { spec: {}, idempotencyKey });
    expect(data.createRun).toMatchObject({
      __typename: 'InvalidInput',
      issues: [{ path: 'idempotencyKey', message: expect.stringContaining('ASCII') }],
    });
  });
});

it('bytes that are no HTTP get a problem document and the security headers too', async () => {
  const { hostname, port } = new URL(plane.api.url);
  for (const [bytes, status] of [
    ['nonsense\r\n\r\n', 400],
    [`GET /healthz HTTP/1.1\r\nhost: a\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
  ] as const) {
    const socket = createConnection(Number(port), hostname);
    const parts: Buffer[] = [];
    socket.on('data', (part: Buffer) => parts.push(part));
    socket.write(bytes);
    await once(socket, 'close');
    const text = Buffer.concat(parts).toString();
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(text).toContain('x-content-type-options: nosniff');
    expect(JSON.parse(text.slice(text.indexOf('{')))).toMatchObject({ status });
  }
});

it('every root field of the schema was asked', () => {
  const asked = new Set(operations.filter(({ name }) => !name.includes('.')).map(({ kind, name }) => `${kind} ${name}`));
  const host = plane.api.app.get(GraphQLSchemaHost, { strict: false }).schema;
  const there = [host.getQueryType()!, host.getMutationType()!, host.getSubscriptionType()!].flatMap((type) =>
    Object.keys(type.getFields()).map((name) => `${type.name.toLowerCase()} ${name}`),
  );
  expect([...asked].sort()).toEqual(there.sort());
});
