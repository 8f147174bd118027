/** The client against a small server that speaks the contract in docs/reference/schema.graphql over real sockets. */
import { readFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { buildSchema, execute, graphql, parse, subscribe, validate, type GraphQLSchema } from 'graphql';
import { useServer } from 'graphql-ws/use/ws';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { createClient, type PacelineClient } from './client.js';
import { PacelineApiError } from './api-error.js';

const sdl = readFileSync(join(import.meta.dirname, '../../../docs/reference/schema.graphql'), 'utf8');
const schema: GraphQLSchema = buildSchema(/\binput RunSpecInput\b(?=\s*\{)/.test(sdl) ? sdl : `${sdl}\nscalar RunSpecInput`);

it('documents cover every query, mutation and subscription', () => {
  const all = readFileSync(join(import.meta.dirname, 'operations.graphql'), 'utf8');
  for (const type of [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()]) {
    for (const field of Object.keys(type!.getFields())) expect(all, field).toMatch(new RegExp(`\\b${field}\\b`));
  }
});

/** What the server under test does; set by each test. */
interface Behaviour {
  root: Record<string, unknown>;
  /** Events that exist; the connection is cut once after `cutAfter` of them were sent. */
  events: number;
  cutAfter: number;
  status: number;
}
let behaviour: Behaviour;
let http: Server;
let sockets: WebSocketServer;
let url: string;
let client: PacelineClient;
const seen: { authorization?: string | undefined; afterSeq: number[]; variables?: unknown } = { afterSeq: [] };

beforeAll(async () => {
  http = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', async () => {
      seen.authorization = request.headers.authorization;
      if (behaviour.status !== 200) {
        response.writeHead(behaviour.status, { 'retry-after': '2', 'content-type': 'application/problem+json' });
        return response.end(JSON.stringify({ title: 'Unavailable', detail: 'PostgreSQL is away.' }));
      }
      const { query, variables } = JSON.parse(text) as { query: string; variables: Record<string, unknown> };
      seen.variables = variables;
      const result = await graphql({ schema, source: query, variableValues: variables, rootValue: behaviour.root });
      response.writeHead(200, { 'content-type': 'application/json' });
      return response.end(JSON.stringify(result));
    });
  });
  sockets = new WebSocketServer({ server: http, path: '/graphql' });
  useServer(
    {
      schema,
      execute,
      subscribe,
      parse,
      validate, // this module's copies: graphql refuses a schema of another one
      onConnect: ({ connectionParams }) => connectionParams?.['authorization'] === 'Bearer key',
      roots: {
        subscription: {
          runEvents: async function* ({ afterSeq }: { afterSeq: number }) {
            seen.afterSeq.push(afterSeq);
            for (let seq = afterSeq + 1; seq <= behaviour.events; seq++) {
              yield { runEvents: { seq, type: 'x', message: `event ${seq}`, data: {}, at: '2026-01-01T00:00:00Z', attempt: 1 } };
              if (seq === behaviour.cutAfter) {
                behaviour.cutAfter = -1;
                await new Promise((done) => setTimeout(done, 30)); // so that the item is on the wire
                for (const socket of sockets.clients) (socket as WebSocket).terminate();
                await new Promise((done) => setTimeout(done, 10));
              }
            }
          },
        },
      },
    },
    sockets,
  );
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done));
  url = `http://127.0.0.1:${(http.address() as { port: number }).port}`;
});
beforeEach(() => {
  behaviour = { root: {}, events: 0, cutAfter: -1, status: 200 };
  seen.afterSeq = [];
  client = createClient({ url, apiKey: 'key', timeoutMs: 2000 });
  return () => client.close();
});
afterAll(async () => {
  sockets.close();
  http.closeAllConnections();
  await new Promise((done) => http.close(done));
});

describe('requests', () => {
  it('sends the key and returns typed data', async () => {
    behaviour.root = {
      datasets: () => ({
        totalCount: 1,
        edges: [
          { node: { id: 'mnist', name: 'mnist', isBuiltIn: true, title: 'MNIST', trainExamples: 60000, evalExamples: 10000, source: 'y' } },
        ],
        pageInfo: { hasNextPage: false },
      }),
    };
    expect((await client.datasets.list())[0]).toMatchObject({ name: 'mnist', trainExamples: 60_000 });
    expect(seen.authorization).toBe('Bearer key');
  });

  it('says how many requests the key has left', async () => {
    const rateLimit = { cost: 1, mostCost: 5_000, limit: 600, remaining: 599, resetAt: '2026-01-01T00:00:01Z' };
    behaviour.root = { rateLimit };
    expect(await client.rateLimit()).toEqual(rateLimit);
  });

  it('waits for the predictions of a run, and says why there are none', async () => {
    const answers: object[] = [{ state: 'COMPUTING' }, { state: 'READY', examples: 30, measured: 30, split: 'test' }];
    const run = (predictions: unknown) => () => ({ status: 'RUNNING', predictions });
    behaviour.root = { run: () => run(Object.assign({ reason: null, outputs: [] }, answers.shift()))() };
    expect(await client.predictions('r')).toMatchObject({ examples: 30, split: 'test', outputs: [] });
    behaviour.root = { run: run({ state: 'UNAVAILABLE', reason: 'The dataset was removed.', outputs: [] }) };
    await expect(client.predictions('r')).rejects.toMatchObject({ code: 'PREDICTIONS_UNAVAILABLE', message: 'The dataset was removed.' });
    behaviour.root = { run: run({ state: 'COMPUTING', reason: null, outputs: [] }) };
    await expect(client.predictions('r', { waitMs: 0 })).rejects.toMatchObject({ code: 'TIMEOUT' });
    behaviour.root = { run: run(null) };
    await expect(client.predictions('r')).rejects.toMatchObject({ code: 'CONFLICT', message: expect.stringContaining('RUNNING') });
  });

  it('turns the other members of a result union into errors with code and issues', async () => {
    behaviour.root = {
      createRun: () => ({
        __typename: 'InvalidInput',
        code: 'INVALID_INPUT',
        message: 'The spec is wrong.',
        issues: [{ path: 'replicas', message: 'too many' }],
      }),
    };
    await expect(client.createRun({ replicas: 9 })).rejects.toMatchObject({
      name: 'PacelineApiError',
      code: 'INVALID_INPUT',
      issues: [{ path: 'replicas', message: 'too many' }],
    });
  });

  it('says which limit of the team is reached, in numbers', async () => {
    const reached = { limit: 'activeRuns', most: 3, used: 3, asked: 1 };
    const outcome = { __typename: 'LimitReached', code: 'LIMIT_REACHED', message: 'The team has 3 of 3 runs.' };
    behaviour.root = { createRun: () => Object.assign(outcome, reached) };
    await expect(client.createRun({})).rejects.toMatchObject({ code: 'LIMIT_REACHED', reached });
  });

  it('sends a topology in its own field', async () => {
    behaviour.root = { createRun: () => ({ __typename: 'NotFound', code: 'NOT_FOUND', message: 'x' }) };
    const topology = { class_name: 'Sequential', config: { layers: [] } };
    await expect(client.createRun({ model: { topology }, seed: 3 }, { idempotencyKey: 'k' })).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(seen.variables).toEqual({ spec: { modelTopology: topology, seed: 3 }, idempotencyKey: 'k' });
  });

  it.each([null, 5, { class_name: 'Sequential', config: {} }, { modelTopology: {} }, { topology: {}, weights: 'w' }])(
    'refuses a model in another form, which the api would not see: %j',
    async (model) => {
      const refused = { code: 'INVALID_INPUT', issues: [{ path: 'model', message: expect.stringContaining('{ topology }') as string }] };
      await expect(client.createRun({ model } as never)).rejects.toMatchObject(refused);
    },
  );

  const TIMEOUT_MS = 200;
  /** @returns what has the oldest deadline of a request pass: no clock does */
  function heldDeadlines(): () => void {
    const { setTimeout: timer } = globalThis;
    const held: (() => void)[] = [];
    const hold = (act: () => void, ms: number): unknown => (ms === TIMEOUT_MS ? void held.push(act) : timer(act, ms));
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(hold as typeof setTimeout);
    return () => held.shift()!();
  }

  it('sends a run that was not answered again, under one key of its own, and gives up in the end', async () => {
    const keys: unknown[] = [];
    behaviour.root = {
      createRun: ({ idempotencyKey }: { idempotencyKey: string }) => {
        keys.push(idempotencyKey);
        return keys.length === 1 ? new Promise(() => undefined) : { __typename: 'CreateRunSuccess', run: { id: 'r' } };
      },
    };
    const impatient = createClient({ url, timeoutMs: TIMEOUT_MS });
    const pass = heldDeadlines();
    const made = impatient
      .createRun({})
      .catch((error: unknown) => expect(error).toMatchObject({ code: expect.not.stringMatching('TIMEOUT') }));
    await expect.poll(() => keys.length).toBe(1);
    pass();
    await made;
    expect(keys).toHaveLength(2);
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(keys[1]).toBe(keys[0]);
    let asked = 0;
    behaviour.root = { createRun: () => (asked++, new Promise(() => undefined)) };
    const left = impatient.createRun({}, { attempts: 1 }).catch((error: unknown) => error);
    await expect.poll(() => asked).toBe(1);
    pass();
    pass();
    expect(await left).toMatchObject({ code: 'TIMEOUT' });
  });

  it.each<[string, (impatient: PacelineClient) => Promise<unknown>, object]>([
    ['createTeam', (impatient) => impatient.createTeam('t'), { team: { id: 't', apiKeys: [] } }],
    ['createApiKey', (impatient) => impatient.createApiKey('t', 'k'), { apiKey: { id: 'k' }, secret: 's' }],
    ['createClusterSpec', (impatient) => impatient.createClusterSpec({ name: 'c' }), { clusterSpec: { id: 'c' } }],
  ])('%s that was not answered is sent again under one key', async (name, make, made) => {
    const keys: unknown[] = [];
    behaviour.root = {
      [name]: ({ idempotencyKey }: { idempotencyKey: string }) => {
        keys.push(idempotencyKey);
        const success = `${name[0]!.toUpperCase()}${name.slice(1)}Success`;
        return keys.length === 1 ? new Promise(() => undefined) : Object.assign({ __typename: success }, made);
      },
    };
    const pass = heldDeadlines();
    const answered = make(createClient({ url, timeoutMs: TIMEOUT_MS })).catch((error: unknown) =>
      expect(error).toMatchObject({ code: expect.not.stringMatching('TIMEOUT') }),
    );
    await expect.poll(() => keys.length).toBe(1);
    pass();
    await answered;
    expect(keys).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), keys[0]]);
  });

  it('sets limits of a team, and keeps those that are not named', async () => {
    const limits = { activeRuns: 3, serverPlaces: null, workers: null, parameters: null, datasetBytes: null };
    const used = { activeRuns: 1, serverPlaces: 1, workers: 2, parameters: 10, datasetBytes: 0 };
    const team = { id: 't', name: 'n', createdAt: '2026-01-01T00:00:00Z', apiKeys: [], limits, used };
    behaviour.root = { setTeamLimits: () => ({ __typename: 'SetTeamLimitsSuccess', team }) };
    expect(await client.setTeamLimits('t', { activeRuns: 3, workers: null })).toEqual(team);
    expect(seen.variables).toEqual({ teamId: 't', limits: { activeRuns: 3, workers: null } });
  });

  it('says which codes are temporary: no server, no answer, a service away', async () => {
    const away = createClient({ url: 'http://127.0.0.1:1', timeoutMs: 2000 });
    await expect(away.viewer()).rejects.toMatchObject({ code: 'UNREACHABLE', isTemporary: true });
    behaviour.root = { clusterSpecs: () => new Promise(() => undefined) };
    await expect(createClient({ url, timeoutMs: 100 }).clusterSpecs()).rejects.toMatchObject({ code: 'TIMEOUT', isTemporary: true });
    behaviour.status = 503;
    await expect(client.clusterSpecs()).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: 'PostgreSQL is away.',
      retryAfterMs: 2000,
      isTemporary: true,
    });
    behaviour.status = 401;
    await expect(client.clusterSpecs()).rejects.toMatchObject({ code: 'UNAUTHENTICATED', isTemporary: false });
  });

  it('repeats what nobody has seen, and of what may have been seen only what may happen twice, saying so once', async () => {
    const port = await new Promise<number>((done) => {
      const probe = createServer().listen(0, '127.0.0.1', () => {
        const { port: free } = probe.address() as { port: number };
        probe.close(() => done(free));
      });
    });
    const told: string[] = [];
    let answers = 0;
    // Nobody listens at first; then 503 twice; then the answer.
    let data: object = { clusterSpecs: [] };
    const late = createServer((_request, response) => {
      answers++;
      if (answers <= 2) return response.writeHead(503, { 'content-type': 'application/json' }).end('{"detail":"PostgreSQL is away."}');
      return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ data }));
    });
    const patient = createClient({
      url: `http://127.0.0.1:${port}`,
      retry: {
        forMs: 10_000,
        onWait: (error) => {
          told.push(error.code);
          if (!late.listening) late.listen(port, '127.0.0.1');
        },
      },
    });
    try {
      expect(await patient.clusterSpecs()).toEqual([]);
      expect([told, answers]).toEqual([['UNREACHABLE'], 3]);
      answers = 0;
      await expect(patient.cancelRun('x')).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      expect(answers, 'a mutation that may have happened is not repeated').toBe(1);
      answers = 2;
      data = { cancelRun: { __typename: 'CancelRunSuccess', run: { id: 'x' } } };
      expect(await patient.cancelRun('x')).toEqual({ id: 'x' });
    } finally {
      late.closeAllConnections();
      await new Promise((done) => late.close(done));
    }
    const from = performance.now();
    const impatient = createClient({ url: `http://127.0.0.1:${port}`, retry: { forMs: 250 } });
    await expect(impatient.clusterSpecs()).rejects.toMatchObject({ code: 'UNREACHABLE' });
    expect(performance.now() - from).toBeGreaterThanOrEqual(100);
  });

  it('says how far a file came whose connection broke, or that is shorter than was said', async () => {
    let how: (response: ServerResponse) => void = () => undefined;
    const breaking = createServer((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': '1000' });
      response.write(Buffer.alloc(400), () => how(response));
    });
    await new Promise<void>((resolve) => breaking.listen(0, '127.0.0.1', resolve));
    const { port } = breaking.address() as { port: number };
    const getter = createClient({ url: `http://127.0.0.1:${port}`, retry: { forMs: 0 } });
    const read = async (): Promise<unknown> => {
      const { body, bytes } = await getter.weights('0190a4de-0000-7000-8000-000000000000');
      expect(bytes).toBe(1000);
      for await (const part of body) expect(part.length).toBeGreaterThan(0);
      return undefined;
    };
    how = (response) => response.destroy();
    await expect(read()).rejects.toThrow(PacelineApiError);
    await expect(read()).rejects.toMatchObject({ code: 'UNREACHABLE', message: expect.stringContaining('400 of 1000 bytes') as string });
    await getter.close();
    breaking.closeAllConnections();
    await new Promise((resolve) => breaking.close(resolve));
  });

  it.each([502, 504, 429])(
    'a creation that is answered with HTTP %i is sent again, whether requests are tried again or not',
    async (status) => {
      for (const forMs of [0, 30_000]) {
        let answers = 0;
        const failing = createServer((request, response) => {
          request.resume().on('end', () => {
            if (++answers < 3) return response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '0' }).end('{}');
            const data = { createRun: { __typename: 'CreateRunSuccess', run: { id: 'x' } } };
            return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ data }));
          });
        });
        await new Promise<void>((done) => failing.listen(0, '127.0.0.1', done));
        const maker = createClient({ url: `http://127.0.0.1:${(failing.address() as { port: number }).port}`, retry: { forMs } });
        try {
          expect(await maker.createRun({})).toEqual({ id: 'x' });
          expect(answers).toBe(3);
        } finally {
          failing.closeAllConnections();
          await new Promise((done) => failing.close(done));
        }
      }
    },
  );

  it('sends weights once, and waits with them while the api takes those of others', async () => {
    const asked: string[] = [];
    let there = false;
    const busy = createServer((request, response) => {
      asked.push(request.method!);
      request.resume().on('end', () => {
        if (request.method === 'HEAD') return response.writeHead(there ? 200 : 404).end();
        there = asked.length > 2;
        return response.writeHead(there ? 201 : 429, { 'retry-after': '0' }).end('{}');
      });
    });
    await new Promise<void>((done) => busy.listen(0, '127.0.0.1', done));
    const sender = createClient({ url: `http://127.0.0.1:${(busy.address() as { port: number }).port}` });
    try {
      const first = await sender.models.upload(Buffer.from('weights'));
      expect(await sender.models.upload(Buffer.from('weights'))).toEqual(first);
      expect(asked).toEqual(['HEAD', 'PUT', 'PUT', 'HEAD']);
    } finally {
      busy.closeAllConnections();
      await new Promise((done) => busy.close(done));
    }
  });

  it.each(['localhost:4100', 'http://host/paceline', 'http://host/?a=b'])('refuses an address that is none of an api: %s', (address) => {
    expect(() => createClient({ url: address })).toThrow(expect.objectContaining({ code: 'INVALID_URL' }));
    expect(createClient({ url: 'http://host/' }).url).toBe('http://host/');
  });

  it('waits as long as a 503 asks to, and not at all where that is longer than it may', async () => {
    behaviour.status = 503;
    const told: number[] = [];
    const patient = createClient({ url, retry: { forMs: 1_500, onWait: () => told.push(performance.now()) } });
    await expect(patient.clusterSpecs()).rejects.toMatchObject({ code: 'UNAVAILABLE', retryAfterMs: 2000 });
    expect(told).toEqual([]);
  });
});

describe('subscriptions', () => {
  const collect = async (options = {}): Promise<number[]> => {
    const numbers: number[] = [];
    for await (const event of client.runEvents('run', options)) numbers.push(event.seq);
    return numbers;
  };

  it('end when the server completes them', async () => {
    behaviour.events = 3;
    expect(await collect({ afterSeq: 1 })).toEqual([2, 3]);
  });

  it('continue after the last item when the connection is cut, without loss or repetition', async () => {
    behaviour.events = 200;
    behaviour.cutAfter = 77;
    const connection: string[] = [];
    expect(await collect({ onConnection: (state: string) => connection.push(state) })).toEqual(
      Array.from({ length: 200 }, (_, i) => i + 1),
    );
    expect(behaviour.cutAfter, 'the cut has happened').toBe(-1);
    expect(seen.afterSeq).toEqual([0, 77]);
    expect(connection).toEqual(['lost', 'back']);
  });

  it('give up after reconnectForMs, and at once when the key is refused', async () => {
    const away = createClient({ url: 'http://127.0.0.1:1' });
    await expect(away.runEvents('run', { reconnectForMs: 200 }).next()).rejects.toMatchObject({ code: 'UNREACHABLE' });
    const stranger = createClient({ url, apiKey: 'wrong' });
    await expect(stranger.runEvents('run').next()).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
    await stranger.close();
  });

  it('end when aborted', async () => {
    const controller = new AbortController();
    behaviour.events = 1e9;
    let count = 0;
    for await (const _event of client.runEvents('run', { signal: controller.signal })) if (++count === 5) controller.abort();
    expect(count).toBeGreaterThanOrEqual(5);
    expect(count).toBeLessThan(1000);
  });
});
