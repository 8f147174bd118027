/** Reading: thinned metrics, courses and pages. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Database } from '../../apps/api/src/database/database.js';
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
      INSERT INTO "Metric" ("runId", "seq", "attempt", "sequence", "round", "rounds", "epoch", "values", "validation", "examples", "examplesPerSecond", "roundMs", "at")
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
        sequence: i + 1,
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
      sequence: seq,
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
