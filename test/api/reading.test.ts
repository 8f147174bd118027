/** Reading: pages, thinned metrics, limits of GraphQL, REST and its document, the dashboard's files, health. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { ZodType } from 'zod';
import { Database } from '../../apps/api/src/database/database.js';
import * as bodies from '../../apps/api/src/http/bodies.js';
import { isDescribed } from './described.js';
import { routesOf } from './routes.js';
import { patient } from '@paceline/testkit';
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

describe('metrics', () => {
  const ROUNDS = 20_000;
  beforeAll(async () => {
    await database().$executeRaw`
      INSERT INTO "Metric" ("runId", "seq", "attempt", "n", "round", "rounds", "epoch", "values", "validation", "examples", "examplesPerSecond", "roundMs", "at")
      SELECT ${runId}::uuid, i + 1, 1, i + 1, i, 1, 0, jsonb_build_object('loss', CASE WHEN i = 12345 THEN 99 ELSE 1 END),
        CASE WHEN i % 2000 = 1999 THEN jsonb_build_object('round', i, 'examples', 30, 'values', jsonb_build_object('loss', 5, 'accuracy', i / 20000.0)) END,
        CASE WHEN i % 2 = 0 THEN 100 ELSE 300 END, i, 5, now()
      FROM generate_series(0, ${ROUNDS - 1}) AS i`;
  });
  const METRICS =
    'query($id: ID!, $names: [String!]!, $from: Int, $to: Int, $points: Int) { run(id: $id) { metrics(names: $names, fromRound: $from, toRound: $to, maxPoints: $points) { name points { round rounds value min max atMs } } } }';

  it('come back by name, thinned to so many points that account for every round and keep a spike', async () => {
    const { data } = await caller.gql(METRICS, { id: runId, names: ['loss', 'accuracy', 'examplesPerSecond'], points: 100 });
    const [loss, accuracy, speed] = data.run.metrics;
    expect([loss.name, accuracy.name, speed.name]).toEqual(['loss', 'accuracy', 'examplesPerSecond']);
    expect(loss.points).toHaveLength(100);
    expect(loss.points.reduce((sum: number, point: { rounds: number }) => sum + point.rounds, 0)).toBe(ROUNDS);
    expect(loss.points.at(-1).round).toBe(ROUNDS - 1);
    const spike = loss.points.find((point: { max: number }) => point.max === 99);
    expect(spike.round).toBeGreaterThanOrEqual(12_345);
    expect(spike.min).toBe(1);
    expect(spike.value).toBeCloseTo(1 + (98 * 300) / (100 * 100 + 100 * 300), 9); // weighted by examples
    expect(accuracy.points).toEqual([]);
    // Rounds of 100 and 300 examples in turn: the mean lies nearer to the odd ones.
    expect(speed.points[0].value).toBeCloseTo(99.75, 6);
  });

  it('of the evaluation split have val_ in front, a point for each validation', async () => {
    const { data } = await caller.gql(METRICS, { id: runId, names: ['val_loss', 'val_accuracy'], points: 100 });
    const [loss, accuracy] = data.run.metrics;
    expect(loss.points.map(({ round, value }: { round: number; value: number }) => [round, value])).toEqual(
      Array.from({ length: 10 }, (_, i) => [2000 * i + 1999, 5]),
    );
    expect(accuracy.points.at(-1).value).toBeCloseTo(0.999_95, 9);
    const { data: bad } = await caller.gql(
      'mutation($spec: RunSpecInput!) { createRun(spec: $spec) { __typename ... on InvalidInput { issues { path message } } } }',
      { spec: { dataset: 'iris', earlyStopping: { metric: 'val_auc' } } },
    );
    expect(bad.createRun.issues).toEqual([
      {
        path: 'earlyStopping.metric',
        message: '"val_auc" is not measured by this run; there is val_loss, val_accuracy: take one of these, or add it to metrics',
      },
    ]);
  });

  it('of validations come to a course: the best, the newest, and where the rate fell, without what a restart made void', async () => {
    const own = await plane.team('validators');
    const id = await createRun(own, {
      dataset: 'iris',
      validation: { everyRounds: 10 },
      reduceLROnPlateau: { metric: 'val_accuracy', patience: 1 },
    });
    const COURSE =
      'query($id: ID!) { run(id: $id) { course { metric better best { round values } last { round values } reductions { round was factor } } targetScales { output } } }';
    expect((await own.gql(COURSE, { id })).data.run).toEqual({ course: null, targetScales: [] });
    await database().$executeRaw`UPDATE "Run" SET "attempt" = 2 WHERE "id" = ${id}::uuid`;
    await database().attempt.create({ data: { runId: id, number: 2, parentNumber: 1, parentRound: 30 } });
    const rows = [0.5, 0.9, 0.7, 0.95, 0.8].map((accuracy, i) => ({ accuracy, round: [9, 19, 29, 39, 39][i]!, attempt: i === 4 ? 2 : 1 }));
    await database().metric.createMany({
      data: rows.map(({ accuracy, round, attempt }, i) => ({
        runId: id,
        seq: i + 1,
        attempt,
        n: i + 1,
        round,
        rounds: 10,
        epoch: 0,
        values: {},
        validation: { round, examples: 30, values: { accuracy } },
        examples: 300,
        examplesPerSecond: 1,
        roundMs: 1,
        at: new Date(),
      })),
    });
    const reduced = (seq: number, round: number, was: number, factor: number) => ({
      runId: id,
      seq,
      attempt: 1,
      n: seq,
      type: 'rate.reduced',
      message: 'falls',
      at: new Date(),
      data: { round, metric: 'val_accuracy', was, factor },
    });
    await database().runEvent.createMany({ data: [reduced(101, 30, 1, 0.1), reduced(102, 40, 0.1, 0.01)] });
    expect((await own.gql(COURSE, { id })).data.run.course).toEqual({
      metric: 'val_accuracy',
      better: 'higher',
      best: { round: 20, values: { accuracy: 0.9 } },
      last: { round: 40, values: { accuracy: 0.8 } },
      reductions: [{ round: 30, was: 1, factor: 0.1 }],
    });
  });

  it('of scaled targets come with what makes them numbers of the data', async () => {
    const inputs = { x: [{ kind: 'number', columns: ['sepal_length', 'sepal_width'] }] };
    const team = await plane.team('measurers');
    const factorsWith = async (scale: string) => {
      const targets = { width: { kind: 'number', columns: ['petal_width'], scale } };
      const id = await createRun(team, { dataset: 'iris', features: { inputs, targets }, loss: 'meanSquaredError' });
      const { data } = await team.gql('query($id: ID!) { run(id: $id) { targetScales { output target factors } } }', { id });
      return data.run.targetScales.map(({ target, factors }: { target: string; factors: number[] }) => [target, factors]);
    };
    expect(await factorsWith('standard')).toEqual([['width', [expect.closeTo(0.7555, 4)]]]);
    expect(await factorsWith('none')).toEqual([['width', [1]]]);
  });

  it('of a part are exact when the part is small', async () => {
    const { data } = await caller.gql(METRICS, { id: runId, names: ['examplesPerSecond'], from: 500, to: 509, points: 2000 });
    expect(
      data.run.metrics[0].points.map((point: { round: number; value: number; rounds: number }) => [point.round, point.value, point.rounds]),
    ).toEqual(Array.from({ length: 10 }, (_, i) => [500 + i, 500 + i, 1]));
  });

  it('are refused without a name, with an unknown one, with too many points', async () => {
    for (const [variables, text] of [
      [{ names: [] }, 'names'],
      [{ names: ['loss"; DROP TABLE "Metric"; --'] }, 'names'],
      [{ names: ['loss'], points: 2001 }, 'maxPoints'],
      [{ names: ['loss'], points: 0 }, 'maxPoints'],
    ] as const) {
      const { errors } = await caller.gql(METRICS, { id: runId, ...variables });
      expect([errors?.[0]?.extensions.code, errors?.[0]?.message.startsWith(text)], JSON.stringify(variables)).toEqual([
        'INVALID_INPUT',
        true,
      ]);
    }
  });
});

describe('pages', () => {
  const RUNS =
    'query($first: Int, $after: String, $last: Int, $before: String, $status: [RunStatus!]) { runs(first: $first, after: $after, last: $last, before: $before, status: $status) { totalCount edges { cursor node { id name } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }';
  let ids: string[];
  let pager: Caller;
  beforeAll(async () => {
    pager = await plane.team('pagers');
    ids = [];
    for (let i = 0; i < 25; i++) ids.unshift(await createRun(pager, { name: `run ${i}` }));
    // Several of the same moment: the id decides.
    await database().run.updateMany({ where: { id: { in: ids.slice(5, 15) } }, data: { createdAt: new Date(Date.now() - 1) } });
  });

  async function walk(size: number, direction: 'forward' | 'backward'): Promise<string[]> {
    const found: string[] = [];
    let cursor: string | null = null;
    for (;;) {
      const { data } = await pager.gql(
        RUNS,
        direction === 'forward' ? { first: size, after: cursor } : { first: null, last: size, before: cursor },
      );
      const page = data.runs;
      expect(page.totalCount).toBe(25);
      const nodes = page.edges.map(({ node }: { node: { id: string } }) => node.id);
      if (direction === 'forward') found.push(...nodes);
      else found.unshift(...nodes);
      if (!(direction === 'forward' ? page.pageInfo.hasNextPage : page.pageInfo.hasPreviousPage)) return found;
      cursor = direction === 'forward' ? page.pageInfo.endCursor : page.pageInfo.startCursor;
    }
  }

  it('of any size, in both directions, hold every run once in the same order', async () => {
    const whole = await walk(100, 'forward');
    expect(new Set(whole)).toEqual(new Set(ids));
    for (const size of [1, 7, 25]) {
      expect(await walk(size, 'forward')).toEqual(whole);
      expect(await walk(size, 'backward')).toEqual(whole);
    }
  });

  it('do not shift when something is added in between', async () => {
    const first = await pager.gql(RUNS, { first: 10 });
    await createRun(pager, { name: 'late' });
    const second = await pager.gql(RUNS, { first: 10, after: first.data.runs.pageInfo.endCursor });
    const both = [...first.data.runs.edges, ...second.data.runs.edges].map((edge: { node: { id: string } }) => edge.node.id);
    expect(new Set(both).size).toBe(20);
  });

  it('filter by status', async () => {
    expect((await pager.gql(RUNS, { status: ['RUNNING'] })).data.runs.edges).toEqual([]);
    expect((await pager.gql(RUNS, { status: ['QUEUED', 'RUNNING'], first: 3 })).data.runs.edges).toHaveLength(3);
  });

  it('filter by a part of the name, in which no character is special', async () => {
    const named = async (name: string): Promise<string[]> => {
      const { data } = await pager.gql('query($name: String) { runs(first: 100, name: $name) { edges { node { name } } } }', { name });
      return data.runs.edges.map(({ node }: { node: { name: string } }) => node.name);
    };
    expect((await named('RUN 2')).sort()).toEqual(['run 2', 'run 20', 'run 21', 'run 22', 'run 23', 'run 24']);
    expect([await named('run_2'), await named('%'), await named('un 24\\')]).toEqual([[], [], []]);
  });

  it('hold the runs that a text may mean: an id, @last, a name, a beginning or an end of an id', async () => {
    const meant = async (reference: string, by = pager): Promise<string[]> => {
      const { data } = await by.gql('query($reference: String!) { runsMeant(reference: $reference) { id } }', { reference });
      return data.runsMeant.map(({ id }: { id: string }) => id);
    };
    const id = ids[3]!;
    const last = await createRun(pager, { name: ids[7]!.slice(-8) });
    expect(await meant(id)).toEqual([id]);
    expect(await meant('@last')).toEqual([last]);
    expect(await meant('run 24')).toEqual([ids[0]]);
    expect(await meant(id.slice(-8))).toEqual([id]);
    expect(await meant(id.slice(0, 30).toUpperCase())).toEqual([id]);
    expect(await meant(ids[7]!.slice(-8)), 'a name and a part of an id that read alike').toEqual([last, ids[7]]);
    expect(await meant(id.slice(0, 4)), 'all began in the same hour').toHaveLength(10);
    for (const nothing of [id.slice(-3), '%', '____', 'run 24\0', '']) expect(await meant(nothing), nothing).toEqual([]);
    expect(await meant(id, caller), 'of another team').toEqual([]);
    expect(await meant(id.slice(-8), caller)).toEqual([]);
  });

  it('refuse a huge size, a foreign cursor, a mixture of directions', async () => {
    const events = await caller.gql('query($id: ID!) { run(id: $id) { events(first: 1) { edges { cursor } } } }', { id: runId });
    const foreign: string = events.data.run.events.edges[0].cursor;
    const wrong = [
      { first: 101 },
      { first: -1 },
      { first: null, last: 1_000_000 },
      { after: foreign },
      { after: 'garbage' },
      { after: '' + 'A'.repeat(5_000) },
      { after: Buffer.from('["runs","0","x"]').toString('base64url') },
      { before: foreign },
      { first: null, last: 5, after: foreign },
    ];
    for (const variables of wrong) {
      const { errors } = await pager.gql(RUNS, variables);
      expect(errors?.[0]?.extensions.code, JSON.stringify(variables).slice(0, 80)).toBe('INVALID_INPUT');
    }
  });
});

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
    const startedAt = performance.now();
    const { status, errors, data } = await send(query);
    expect(status).toBe(400);
    expect(data).toBeUndefined();
    expect(errors![0]!.extensions.code).toMatch(/^(GRAPHQL_(PARSE|VALIDATION)_FAILED|BAD_USER_INPUT|BAD_REQUEST)$/);
    expect(JSON.stringify(errors)).not.toMatch(/stacktrace|node_modules|\/src\//);
    expect(performance.now() - startedAt).toBeLessThan(patient(5_000));
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
      data: ids.flatMap((runId, i) => Array.from({ length: i % 3 }, (_, n) => ({ runId, attempt: 1, seat: 0, n, heldSeats: 0 }))),
    });
    const asked = vi.spyOn(database(), '$queryRawUnsafe');
    const { data, errors } = await owner.gql(
      `query($n: Int) { runs(first: $n) { edges { node { id
         events(last: 2, first: null) { edges { node { message } } pageInfo { hasPreviousPage } } statusHistory(last: 1) { to } stepTasks(first: 1) { n replicas createdAt worker { id } }
         attempts { number } checkpoints { round } ledger { committedRounds } servers { index } } } } }`,
      { n: 20 },
    );
    expect(errors).toBeUndefined();
    expect(asked).toHaveBeenCalledTimes(5); // one for each list, whatever the number of runs
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
    ]) {
      expect(text, name).toContain(name);
    }
    expect(text).not.toContain(runId);
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
