/** The api over HTTP: limits of GraphQL, REST and its document, the dashboard's files, health. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { ZodType } from 'zod';
import { Database } from '../../apps/api/src/database/database.js';
import * as bodies from '../../apps/api/src/http/bodies.js';
import { isDescribed } from './described.js';
import { routesOf } from './routes.js';
import { ControlPlane, createRun, type Caller } from './services.js';

let plane: ControlPlane;
let caller: Caller & { teamId: string };
let runId: string;
beforeAll(async () => {
  plane = await ControlPlane.start();
  caller = await plane.team('readers');
  runId = await createRun(caller, { name: 'measured', length: { rounds: 100_000 } });
});
afterAll(() => plane?.stop());

const database = () => plane.api.app.get(Database);

describe('GraphQL is bounded', () => {
  const send = (query: string) => caller.gql(query);
  it.each<[string, string]>([
    ['depth 50', `{ viewer ${'{ team '.repeat(50)} { id } ${'}'.repeat(50)} }`],
    ['ten thousand aliases', `{ ${Array.from({ length: 10_000 }, (_, i) => `a${i}: viewer { isAdmin }`).join(' ')} }`],
    ['fifty aliases', `{ ${Array.from({ length: 50 }, (_, i) => `a${i}: viewer { isAdmin }`).join(' ')} }`],
    ['a cycle of fragments', '{ viewer { ...A } } fragment A on Viewer { ...B } fragment B on Viewer { ...A }'],
    ['a hundred thousand tokens', `{ viewer { ${'isAdmin '.repeat(100_000)} } }`],
    ['many directives', `{ viewer { isAdmin ${'@include(if: true) '.repeat(60)} } }`],
    ['pages of pages', '{ runs(first: 100) { edges { node { events(first: 100) { edges { node { seq data } } } } } } }'],
    ['an unknown field', '{ viewer { password } }'],
    ['a syntax error', '{ viewer { '],
  ])('%s is refused before it runs', async (_, query) => {
    const { status, errors, data } = await send(query);
    expect(status).toBe(400);
    expect(data).toBeUndefined();
    expect(errors![0]!.extensions.code).toMatch(/^(GRAPHQL_(PARSE|VALIDATION)_FAILED|BAD_USER_INPUT|BAD_REQUEST)$/);
    expect(JSON.stringify(errors)).not.toMatch(/stacktrace|node_modules|\/src\//);
  });

  it('pages of pages by variables are refused like those by numbers, and smaller ones pass', async () => {
    const query = 'query($n: Int) { runs(first: $n) { edges { node { events(first: $n) { edges { node { seq data } } } } } } }';
    const refused = await caller.gql(query, { n: 100 });
    expect([refused.status, refused.data, refused.errors?.[0]?.message]).toEqual([
      400,
      undefined,
      expect.stringMatching(/\d+ points.*first/),
    ]);
    expect((await caller.gql(query, { n: 20 })).data.runs.edges).toHaveLength(1);
  });

  const LISTS = ['attempts', 'checkpoints', 'events-DESC', 'status-changes', 'step-tasks'].map((name) => `run-${name}`);
  it('a page of runs with everything below them is read in a few statements, and every run gets its own', async () => {
    const owner = await plane.team('many reads');
    const ids: string[] = [];
    for (let i = 0; i < 12; i++) ids.unshift(await createRun(owner, { name: `run ${i}`, replicas: 1 }));
    await database().runEvent.createMany({
      data: ids.flatMap((id, i) =>
        Array.from({ length: i }, (_, k) => ({
          runId: id,
          seq: 100 + k,
          attempt: 1,
          type: 'x',
          message: `${id} ${k}`,
          data: {},
          at: new Date(),
        })),
      ),
    });
    await database().stepTask.createMany({
      data: ids.flatMap((runId, i) =>
        Array.from({ length: i % 3 }, (_, incarnation) => ({ runId, attempt: 1, seat: 0, incarnation, heldSeats: 0 })),
      ),
    });
    const asked = vi.spyOn(database(), 'rows');
    const { data, errors } = await owner.gql(
      `query($n: Int) { runs(first: $n) { edges { node { id
         events(last: 2, first: null) { edges { node { message } } pageInfo { hasPreviousPage } } statusHistory(last: 1) { to } stepTasks(first: 1) { incarnation replicas createdAt worker { id } }
         attempts { number } checkpoints { round } ledger { committedRounds } servers { index } } } } }`,
      { n: 20 },
    );
    expect(errors).toBeUndefined();
    const lists = asked.mock.calls.map(([name]) => name).filter((name) => LISTS.includes(name));
    expect(lists.toSorted()).toEqual(LISTS); // one for each list, whatever the number of runs
    asked.mockRestore();
    const nodes = data.runs.edges.map((edge: { node: object }) => edge.node) as Record<string, never>[];
    expect(nodes.map(({ id }) => id)).toEqual(ids);
    for (const [i, { events, statusHistory, stepTasks, attempts }] of nodes.entries() as unknown as Iterable<
      [number, Record<string, never>]
    >) {
      const { edges, pageInfo } = events as { edges: { node: { message: string } }[]; pageInfo: { hasPreviousPage: boolean } };
      const expected = [[`${ids[i]} ${i - 2}`, `${ids[i]} ${i - 1}`], true];
      if (i >= 2) expect([edges.map(({ node }) => node.message), pageInfo.hasPreviousPage]).toEqual(expected);
      expect([statusHistory, stepTasks, attempts].map((list) => (list as unknown[]).length)).toEqual([1, i % 3 === 0 ? 0 : 1, 1]);
      if (i % 3 === 2) expect(stepTasks).toMatchObject([{ worker: null, replicas: [] }]);
    }
  });

  it('a batch, a body of two megabytes and a form are refused', async () => {
    const batch = await caller.post('/graphql').send([{ query: '{ viewer { isAdmin } }' }, { query: '{ viewer { isAdmin } }' }]);
    expect(batch.status).toBe(400);
    const large = await caller.post('/graphql').send({ query: '{ viewer { isAdmin } }', variables: { x: 'x'.repeat(2_000_000) } });
    expect([large.status, large.body.errors[0].extensions.code]).toEqual([413, 'TOO_LARGE']);
    const form = await caller.post('/graphql').type('form').send('query={viewer{isAdmin}}');
    expect(form.status).toBeGreaterThanOrEqual(400);
    expect((await caller.get('/graphql?query={viewer{isAdmin}}')).status).toBe(400); // a link must not be able to ask
  });

  it('but introspection and what the dashboard asks for pass', async () => {
    const { getIntrospectionQuery } = await import('graphql');
    expect((await send(getIntrospectionQuery())).errors).toBeUndefined();
    const { parse, print } = await import('graphql');
    // As many series as the page of a run asks for at once.
    const names = Array.from({ length: 24 }, () => ['loss', 'val_loss']).flat();
    const content = { name: 'iris', version: 'a'.repeat(64), split: 'train', rows: 10, from: 0, offset: 0 };
    const texts = ['operations', 'course'].map((file) => readFileSync(`apps/dashboard/src/graphql/${file}.graphql`, 'utf8'));
    const document = parse(texts.join('\n'));
    const fragments = document.definitions.filter(({ kind }) => kind === 'FragmentDefinition');
    for (const definition of document.definitions) {
      if (definition.kind !== 'OperationDefinition' || definition.operation !== 'query') continue;
      const used = fragments.filter((fragment) => 'name' in fragment && print(definition).includes(`...${fragment.name?.value}`));
      const query = print({ ...document, definitions: [definition, ...used] });
      const variables = { id: '0198c7a5-0000-7000-8000-000000000000', first: 50, last: 50, names, maxPoints: 300, ...content };
      const { errors } = await caller.gql(query, variables);
      expect([definition.name?.value, errors]).toEqual([definition.name?.value, undefined]);
    }
  });
});

describe('REST', () => {
  it('offers exactly what its document says', async () => {
    const { body: document } = await caller.get('/api/v1/openapi.json');
    expect(document.openapi).toBe('3.1.1');
    const documented = Object.entries(document.paths as Record<string, object>).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`),
    );
    const instance = plane.api.app.getHttpAdapter().getInstance() as { printRoutes(options: object): string };
    expect(routesOf(instance.printRoutes({ commonPrefix: false })).sort()).toEqual(
      [...documented, 'GET /', 'GET /graphql', 'POST /graphql'].sort(),
    );
    expect(document.components.schemas.RunSpec.properties.optimizer.oneOf).toHaveLength(14);
  });

  it('answers with the bodies that its document describes, and no field more', async () => {
    const team = await plane.team('described');
    const id = await createRun(team, { name: 'described' });
    const ended = { endedAt: new Date(), endCause: 'SERVER_LOST', endReason: 'x', endRound: 3 };
    await database().attempt.update({ where: { runId_number: { runId: id, number: 1 } }, data: ended });
    const result = {
      rounds: 1,
      values: { loss: 1 },
      examplesPerSecond: 1,
      trainedExamples: 1,
      weightsSha256: 'cd'.repeat(32),
      trainingMs: 1,
    };
    await database().run.update({ where: { id }, data: { result: { ...result, weightsFile: null } } });
    const about = { sha256: 'ab'.repeat(32), loss: 0.5, reason: 'cadence', createdAt: new Date() };
    await database().checkpoint.create({ data: { runId: id, attempt: 1, round: 3, bytes: 5n, ...about } });
    const created = await team.post('/api/v1/runs').send({ name: 'described too' });
    isDescribed(bodies.Run, created.body);
    const asked: [string, ZodType][] = [
      ['/api/v1/runs?first=2', bodies.RunPage],
      [`/api/v1/runs/${id}`, bodies.Run],
      [`/api/v1/runs/${id}/attempts`, bodies.Attempts],
      [`/api/v1/runs/${id}/checkpoints`, bodies.Checkpoints],
      [`/api/v1/runs/${id}/events`, bodies.EventPage],
      ['/api/v1/datasets', bodies.DatasetPage],
      ['/api/v1/datasets/iris', bodies.Dataset],
      ['/api/v1/runs/nonsense', bodies.Problem],
    ];
    for (const [path, schema] of asked) isDescribed(schema, (await team.get(path)).body);
    for (const run of [id, created.body.id]) isDescribed(bodies.Run, (await team.post(`/api/v1/runs/${run}/cancel`)).body);
    const refused = await team.post(`/api/v1/runs/${id}/scale`).send({ workers: 'two', sevrers: 1 });
    isDescribed(bodies.Problem, refused.body);
    expect(refused.body.issues.map(({ path }: { path: string }) => path).sort()).toEqual(['sevrers', 'workers']);
  });

  it('lists and shows runs, with cursors', async () => {
    const first = await caller.get('/api/v1/runs?first=1&status=active');
    expect(first.body).toMatchObject({
      totalCount: 1,
      nextCursor: null,
      items: [{ id: runId, status: 'QUEUED', progress: { totalRounds: 100_000 } }],
    });
    const one = await caller.get(`/api/v1/runs/${runId}`);
    expect(one.body).toMatchObject({ id: runId, spec: { name: 'measured' }, ledger: { committedRounds: 0 }, result: null });
    const events = await caller.get(`/api/v1/runs/${runId}/events?first=1`);
    expect(events.body.items).toHaveLength(1);
    const rest = await caller.get(`/api/v1/runs/${runId}/events?first=1&after=${events.body.nextCursor}`);
    expect(rest.body.items[0].seq).toBe(2);
    for (const query of ['first=x', 'first=1000', 'after=foreign', 'status=DONE'])
      expect((await caller.get(`/api/v1/runs?${query}`)).body.code).toBe('INVALID_INPUT');
  });

  it('cancels, and says when there is nothing to cancel', async () => {
    const id = await createRun(caller, { name: 'to cancel' });
    expect((await caller.post(`/api/v1/runs/${id}/cancel`)).status).toBe(202);
    await database().run.update({ where: { id }, data: { status: 'CANCELLED' } });
    const again = await caller.post(`/api/v1/runs/${id}/cancel`);
    expect([again.status, again.body.code]).toEqual([409, 'CONFLICT']);
    expect((await caller.post('/api/v1/runs/nonsense/cancel')).status).toBe(404);
  });

  it('traces no run that does not train, and no number of rounds that makes no sense', async () => {
    const traced = (body: object) => caller.post(`/api/v1/runs/${runId}/trace`).send(body);
    const waiting = await traced({ rounds: 3 });
    expect([waiting.status, waiting.body.code, waiting.body.detail]).toEqual([
      409,
      'CONFLICT',
      expect.stringMatching(/RUNNING can be traced/),
    ]);
    for (const rounds of [0, 51, 1.5, '3']) expect((await traced({ rounds })).status).toBe(422);
  });

  it('hands out the weights of a run, and no other file', async () => {
    const folder = join(plane.dataDir, 'runs', runId);
    mkdirSync(folder, { recursive: true });
    const good = join(folder, 'weights-a1.safetensors');
    const bytes = Buffer.alloc(300_000, 7);
    writeFileSync(good, bytes);
    const outside = join(plane.folder, 'secret.safetensors');
    writeFileSync(outside, 'secret');
    symlinkSync(outside, join(folder, 'link.safetensors'));
    writeFileSync(join(folder, 'other.txt'), 'not weights');
    const result = {
      rounds: 1,
      values: { loss: 1, accuracy: 1 },
      examplesPerSecond: 1,
      trainedExamples: 1,
      weightsSha256: 'cd'.repeat(32),
      trainingMs: 1,
    };
    const download = async (weightsFile: string | null) => {
      await database().run.update({ where: { id: runId }, data: { result: { ...result, weightsFile } } });
      return caller
        .get(`/api/v1/runs/${runId}/weights`)
        .buffer(true)
        .parse((response, done) => {
          const parts: Buffer[] = [];
          response.on('data', (part: Buffer) => parts.push(part));
          response.on('end', () => done(null, Buffer.concat(parts)));
        });
    };
    const reply = await download(good);
    expect([reply.status, reply.headers['content-length'], reply.headers['content-disposition']]).toEqual([
      200,
      '300000',
      `attachment; filename="${runId}.safetensors"`,
    ]);
    expect((reply.body as Buffer).equals(bytes)).toBe(true);
    for (const path of [
      outside,
      join(folder, 'link.safetensors'),
      join(folder, '..', '..', '..', 'secret.safetensors'),
      '/etc/passwd',
      join(folder, 'other.txt'),
      join(folder, 'gone.safetensors'),
      folder,
      null,
    ]) {
      const refused = await download(path);
      expect([refused.status, JSON.parse(String(refused.body)).code], String(path)).toEqual([404, 'NOT_FOUND']);
    }
  });
});

describe('what is public', () => {
  it('is health and readiness with what was checked, and metrics from this host', async () => {
    expect((await request(plane.api.url).get('/readyz')).body).toMatchObject({
      status: 'ok',
      checks: { postgresql: { status: 'ok' }, redis: { status: 'ok' } },
    });
    const { text, headers } = await request(plane.api.url).get('/metrics');
    expect(headers['content-type']).toContain('text/plain');
    for (const name of [
      'paceline_runs{status="QUEUED"}',
      'paceline_http_request_seconds_count',
      'paceline_reports_taken_total',
      'paceline_queue_jobs{queue="placement"',
      'paceline_journal_lag_seconds',
      'paceline_outbox_waiting',
      'paceline_api_process_cpu_seconds_total',
    ]) {
      expect(text, name).toContain(name);
    }
    expect(text).not.toContain(runId);
    // Measured from the first scrape on, and told by it already.
    expect(Number(/^paceline_api_nodejs_eventloop_lag_min_seconds (\S+)$/m.exec(text)?.[1])).toBeLessThan(1);
  });

  it("are the dashboard's files with their pages, and never in place of the api", async () => {
    const folder = join(plane.folder, 'dashboard');
    mkdirSync(join(folder, 'assets'), { recursive: true });
    writeFileSync(join(folder, 'index.html'), '<!doctype html><title>dash</title>');
    writeFileSync(join(folder, 'assets/app-1a2b.js'), 'export {}');
    writeFileSync(join(plane.folder, 'outside.txt'), 'secret');
    const { url } = await plane.startApi({ dashboardDir: folder });
    for (const path of ['/', '/runs/123', '/index.html']) {
      const page = await request(url).get(path);
      expect([page.status, page.text.includes('dash'), page.headers['cache-control']], path).toEqual([200, true, 'no-cache']);
      expect(page.headers['content-security-policy']).toContain("default-src 'self'");
      expect(page.headers['content-security-policy']).not.toContain('unsafe-eval');
      expect(page.headers['x-content-type-options']).toBe('nosniff');
    }
    expect((await request(url).get('/assets/app-1a2b.js')).headers['cache-control']).toContain('immutable');
    for (const path of ['/docs', '/swagger', '/health', '/runs/a/b']) {
      const page = await request(url).get(path);
      expect([page.status, page.text.includes('dash')], path).toEqual([404, true]);
    }
    for (const path of [
      '/assets/gone.js',
      '/api',
      '/api/v2/x',
      '/graphql/x',
      '/../outside.txt',
      '/%2e%2e/outside.txt',
      '/..%2foutside.txt',
      '/assets/..%2f..%2foutside.txt',
    ]) {
      const { status, text } = await request(url).get(path);
      expect(status, path).toBe(404);
      expect(text).not.toContain('secret');
    }
    expect((await request(url).get('/api/v1/openapi.json')).body.openapi).toBe('3.1.1'); // for generators of clients
    expect((await request(url).get('/api/v1/runs')).status).toBe(401);
    expect((await request(url).get('/graphql')).status).toBe(401);
  });
});
