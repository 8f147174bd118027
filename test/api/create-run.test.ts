/** From a spec to a run: what is refused and how it is said, what happens twice, and who sees it. */
import { GraphQLList, GraphQLNonNull, getNamedType, type GraphQLField } from 'graphql';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import pg from 'pg';
import { Database } from '../../apps/api/src/database/database.js';
import { IdempotencyKeys } from '../../apps/api/src/idempotency/idempotency-keys.js';
import { buildSchema } from '../../apps/api/src/reference.js';
import { ControlPlane, CREATE_RUN, createRun, type Caller } from './services.js';

let plane: ControlPlane;
let caller: Caller;
beforeAll(async () => {
  plane = await ControlPlane.start();
  caller = await plane.team('builders');
});
afterAll(() => plane?.stop());

const issuesOf = async (spec: object) => {
  const { data, errors } = await caller.gql(CREATE_RUN, { spec });
  expect(errors).toBeUndefined();
  expect(data.createRun.__typename, JSON.stringify(data)).toBe('InvalidInput');
  return data.createRun.issues as { path: string; message: string }[];
};
const countRuns = async () => (await caller.gql('{ runs { totalCount } }')).data.runs.totalCount as number;
const dense = (units: unknown, name = 'd') => ({ class_name: 'Dense', config: { name, units, activation: 'linear', use_bias: true } });
const first = (units: number, inputs: number) => ({ class_name: 'Dense', config: { name: 'a', units, batch_input_shape: [null, inputs] } });
const sequential = (...layers: object[]) => ({ class_name: 'Sequential', config: { name: 'm', layers } });

describe('a spec is refused, its field is named and nothing is written', () => {
  it.each<[string, object, string, RegExp]>([
    ['unknown dataset', { dataset: 'cifar' }, 'dataset', /mnist/],
    ['unknown zoo model', { model: 'gpt' }, 'model', /mlp/],
    ['unknown optimizer', { optimizer: { name: 'sophia' } }, 'optimizer.name', /./],
    ['a field of another optimizer', { optimizer: { name: 'sgd', momentum: 0.9 } }, 'optimizer.momentum', /unknown field/],
    ['unknown loss', { loss: 'ctc' }, 'loss', /./],
    ['unknown engine', { engine: 'cuda' }, 'engine', /./],
    ['fewer examples than replicas', { globalBatch: 3, replicas: 4 }, 'globalBatch', /at least replicas/],
    [
      'more micro-batches than examples',
      { globalBatch: 8, replicas: 4, strategy: { kind: 'parameter-server', accumulate: 3 } },
      'strategy.accumulate',
      /2 examples/,
    ],
    ['zero replicas', { replicas: 0 }, 'replicas', /./],
    ['a thousand servers', { strategy: { kind: 'parameter-server', servers: 1000 } }, 'strategy.servers', /64/],
    ['a topK of all classes', { metrics: ['topK'], metricOptions: { topK: 10 } }, 'metricOptions.topK', /less than the 10 classes/],
    ['a pattern of no variable', { optimizer: { name: 'adamw', weightDecayExclude: ['*/b'] } }, 'optimizer', /"\*\/b" names no/],
    ['a batch that drops every round', { globalBatch: 65536, dropRemainder: true }, 'globalBatch', /no round is left/],
    [
      'a round of local steps that is longer than an epoch',
      { strategy: { kind: 'local-update', localSteps: 300 } },
      'strategy.localSteps',
      /at most 235/,
    ],
    [
      'more stages than the model can be cut into',
      { strategy: { kind: 'model-parallel', stages: 4 } },
      'strategy.stages',
      /can be cut into at most 3 stages, and not into 4: set stages to 3 or less\. It can be cut after \S+/,
    ],
    [
      'more fragments than the parameters have chunks',
      { strategy: { kind: 'local-update', fragments: 100 } },
      'strategy.fragments',
      /set it to at most 15/,
    ],
    [
      'synchronous steps to the end of the run',
      { strategy: { kind: 'local-update', syncSteps: 40 }, optimizer: { name: 'sgd', learningRate: 0.1 }, length: { rounds: 40 } },
      'strategy.syncSteps',
      /40 of 40 rounds would have one step/,
    ],
    ['more rounds than supported', { globalBatch: 4, length: { epochs: 100000 } }, 'length', /100000000/],
    ['a negative rate', { optimizer: { name: 'sgd', learningRate: -1 } }, 'optimizer.learningRate', /./],
    ['a name with an escape sequence', { name: 'x\u001b[2J' }, 'name', /control/],
    ['a model of the wrong shape', { modelTopology: sequential(first(10, 99)) }, 'model.topology', /99/],
    ['a model with too few outputs', { modelTopology: sequential(first(9, 784)) }, 'model.topology', /10/],
    [
      'a Lambda layer',
      { modelTopology: sequential({ class_name: 'Lambda', config: { function: 'process.exit()' } }) },
      'model.topology.config.layers.0.class_name',
      /not allowed/,
    ],
    ['units of 2^31', { modelTopology: sequential(first(2 ** 31, 784), dense(10)) }, 'model.topology', /./],
    ['a topology without layers', { modelTopology: { class_name: 'Sequential', config: {} } }, 'model.topology.config.layers', /non-empty/],
    ['a topology that is a list', { modelTopology: [] }, 'model.topology', /object/],
    [
      'a thousand layers',
      { modelTopology: sequential(...Array.from({ length: 1_000 }, (_, i) => dense(1, `d${i}`))) },
      'model.topology.config.layers',
      /512/,
    ],
  ])('%s', async (_, spec, path, message) => {
    const before = await countRuns();
    const issues = await issuesOf(spec);
    const found = issues.find((issue) => issue.path.startsWith(path));
    expect(found, JSON.stringify(issues).slice(0, 500)).toBeDefined();
    expect(found!.message).toMatch(message);
    expect(await countRuns()).toBe(before);
  });

  it('nested far deeper than any model', async () => {
    let deep: object = {};
    for (let i = 0; i < 2_000; i++) deep = { config: deep };
    expect((await issuesOf({ modelTopology: { class_name: 'Sequential', config: { layers: [deep] } } }))[0]!.message).toMatch(/deeper/);
  });

  it('with numbers that GraphQL itself cannot read, also by the name of the field', async () => {
    for (const [field, value] of [
      ['globalBatch', 1e30],
      ['replicas', 2.5],
      ['seed', 'many'],
    ] as const) {
      const { status, errors } = await caller.gql(CREATE_RUN, { spec: { [field]: value } });
      expect(status).toBe(400);
      expect(errors?.[0]?.message).toContain(`spec.${field}`);
      expect(errors?.[0]?.extensions.code).toBe('BAD_USER_INPUT');
    }
  });

  it("with fields that are not a person's to set", async () => {
    for (const field of ['status', 'teamId', 'attempt', 'id', 'quota']) {
      const graphql = await caller.gql(CREATE_RUN, { spec: { [field]: 'x' } });
      expect(graphql.errors?.[0]?.message, field).toContain(field);
      const rest = await caller.post('/api/v1/runs').send({ [field]: 'x' });
      expect(rest.body).toMatchObject({
        code: 'INVALID_INPUT',
        issues: [{ path: field, message: expect.stringMatching(/^unknown field/) }],
      });
      expect([rest.status, rest.body.issues.length]).toEqual([422, 1]);
    }
  });

  it('when it is not JSON, or too large', async () => {
    const broken = await caller.post('/api/v1/runs').set('content-type', 'application/json').send('{"name":');
    expect([broken.status, broken.body.code]).toEqual([400, 'BAD_REQUEST']);
    const large = await caller.post('/api/v1/runs').send({ name: 'x'.repeat(1_700_000) });
    expect([large.status, large.body.code]).toEqual([413, 'TOO_LARGE']);
    const polluted = await caller.post('/api/v1/runs').set('content-type', 'application/json').send('{"__proto__": {"name": "x"}}');
    expect(polluted.status).toBe(400);
  });
});

describe('a run', () => {
  it('gets every default, a history with reasons, and says what it waits for', async () => {
    const { data } = await caller.gql(CREATE_RUN, { spec: { name: ' first ', length: { rounds: 10, epochs: null } } });
    const { run } = data.createRun;
    expect(run).toMatchObject({
      name: 'first',
      status: 'QUEUED',
      attempt: 1,
      parameterCount: 235_146,
      spec: { replicas: 4, globalBatch: 256, seed: 42, length: { rounds: 10 } },
    });
    expect(run.statusReason).toMatch(/waits for 1 parameter server: none is connected/);
    const detail = await caller.gql(
      'query($id: ID!) { run(id: $id) { progress { totalRounds totalEpochs } statusHistory { from to attempt } events { edges { node { seq type } } } } }',
      { id: run.id },
    );
    expect(detail.data.run.progress.totalRounds).toBe(10);
    expect(detail.data.run.statusHistory.slice(0, 2)).toEqual([
      { from: null, to: 'PENDING', attempt: 1 },
      { from: 'PENDING', to: 'QUEUED', attempt: 1 },
    ]);
    expect(detail.data.run.events.edges[0].node).toEqual({ seq: 1, type: 'run.created' });
    // Epochs of 235 steps: 5 of the second are synchronous, and 46 rounds of 5 steps are left in it.
    const spec = {
      strategy: { kind: 'local-update', localSteps: 5, syncSteps: 240 },
      optimizer: { name: 'sgd', learningRate: 0.1 },
      length: { epochs: 2 },
    };
    const postLocal = await caller.gql(CREATE_RUN, { spec });
    const { data: asked } = await caller.gql('query($id: ID!) { run(id: $id) { progress { totalRounds totalEpochs } } }', {
      id: postLocal.data.createRun.run.id,
    });
    expect(asked.run.progress).toEqual({ totalRounds: 286, totalEpochs: 2 });
  });

  it('takes a topology, and a cluster spec that bounds its servers', async () => {
    const made = await caller.gql(
      'mutation { createClusterSpec(input: { name: "two", servers: ["10.0.0.1:7000", "10.0.0.2:7000"], workers: ["w1:7001"] }) { ... on CreateClusterSpecSuccess { clusterSpec { id servers } } } }',
    );
    const { id } = made.data.createClusterSpec.clusterSpec;
    const topology = sequential({ class_name: 'Flatten', config: { name: 'f', batch_input_shape: [null, 28, 28, 1] } }, dense(10));
    const { data } = await caller.gql(CREATE_RUN, {
      spec: { modelTopology: topology, strategy: { kind: 'parameter-server', servers: 2 } },
      clusterSpecId: id,
    });
    expect(data.createRun.run).toMatchObject({ parameterCount: 7_850, clusterSpec: { id } });
    const three = await caller.gql(CREATE_RUN, { spec: { strategy: { kind: 'parameter-server', servers: 3 } }, clusterSpecId: id });
    expect(three.data.createRun.issues).toEqual([{ path: 'strategy.servers', message: expect.stringContaining('lists 2') }]);
    const unknown = await caller.gql(CREATE_RUN, { spec: {}, clusterSpecId: '0190c5a5-0000-7000-8000-000000000000' });
    expect(unknown.data.createRun.__typename).toBe('NotFound');
    const twice = await caller.gql('mutation { createClusterSpec(input: { name: "two" }) { __typename } }');
    expect(twice.data.createClusterSpec.__typename).toBe('Conflict');
    const wrong = await caller.gql(
      'mutation { createClusterSpec(input: { name: "bad", servers: ["a:1", "http://x/"] }) { ... on InvalidInput { issues { path } } } }',
    );
    expect(wrong.data.createClusterSpec.issues).toEqual([{ path: 'servers.1' }]);
  });

  it('is made once per idempotency key, also when asked 200 times at once; another spec under the key is a conflict', async () => {
    const before = await countRuns();
    // On a machine that stands still the last ones are told to ask again shortly, which is what a key is for.
    const asked = (): Promise<string> =>
      createRun(caller, { seed: 7 }, { idempotencyKey: 'once' }).catch((error: Error) => {
        if (!error.message.includes('SERVICE_UNAVAILABLE')) throw error;
        return asked();
      });
    const ids = await Promise.all(Array.from({ length: 200 }, asked));
    expect(new Set(ids).size).toBe(1);
    expect(await countRuns()).toBe(before + 1);
    const other = await caller.gql(CREATE_RUN, { spec: { seed: 8 }, idempotencyKey: 'once' });
    expect(other.data.createRun).toMatchObject({ __typename: 'Conflict', code: 'CONFLICT' });
    const overRest = await caller.post('/api/v1/runs').set('idempotency-key', 'once').send({ seed: 7 });
    expect([overRest.status, overRest.body.id]).toEqual([201, ids[0]]);
    // Another team's key of the same name is its own.
    const stranger = await plane.team('strangers-with-keys');
    expect(await createRun(stranger, { seed: 8 }, { idempotencyKey: 'once' })).not.toBe(ids[0]);
  });
});

describe('under one idempotency key', () => {
  it('teams and cluster specs are made once, an API key too, whose secret is not shown again', async () => {
    const twice = async (from: Caller, mutation: string) => [
      (await from.gql(`mutation { incarnation: ${mutation} }`)).data.incarnation,
      (await from.gql(`mutation { incarnation: ${mutation} }`)).data.incarnation,
    ];
    const [team, teamAgain] = await twice(
      plane.admin,
      'createTeam(name: "kept", idempotencyKey: "t") { ... on CreateTeamSuccess { team { id } } }',
    );
    expect(teamAgain).toEqual(team);
    const [spec, specAgain] = await twice(
      caller,
      'createClusterSpec(input: { name: "kept" }, idempotencyKey: "c") { ... on CreateClusterSpecSuccess { clusterSpec { id } } }',
    );
    expect([specAgain, specAgain.clusterSpec.id]).toEqual([spec, expect.any(String)]);
    const [key, keyAgain] = await twice(
      plane.admin,
      `createApiKey(teamId: "${team.team.id}", name: "k", idempotencyKey: "k") { __typename ... on CreateApiKeySuccess { apiKey { id } secret } ... on Conflict { message } }`,
    );
    expect(keyAgain).toEqual({ __typename: 'Conflict', message: expect.stringContaining(key.apiKey.id) });
    const keys = await plane.admin.gql('query($id: ID!) { team(id: $id) { apiKeys { id } } }', { id: team.team.id });
    expect(keys.data.team.apiKeys).toHaveLength(1);
    const other = await caller.gql(CREATE_RUN, { spec: {}, idempotencyKey: 'c' });
    expect(other.data.createRun).toMatchObject({ __typename: 'Conflict', message: expect.stringMatching(/another request/) });
  });

  it('the second answer says so in a header, over GraphQL and REST, whatever the order of the fields', async () => {
    const first = await caller.gql(CREATE_RUN, { spec: { seed: 3, replicas: 2 }, idempotencyKey: 'said' });
    const second = await caller.gql(CREATE_RUN, { spec: { replicas: 2, seed: 3, name: null }, idempotencyKey: 'said' });
    const rest = await caller.post('/api/v1/runs').set('idempotency-key', 'said').send({ replicas: 2, seed: 3 });
    expect([first, second, rest].map(({ headers }) => headers['idempotent-replayed'])).toEqual([undefined, 'true', 'true']);
    expect([second.data.createRun.run.id, rest.body.id]).toEqual(Array(2).fill(first.data.createRun.run.id));
    const deep = await caller
      .post('/api/v1/runs')
      .set('idempotency-key', 'deep')
      .send(`{"name":${'['.repeat(5000)}${']'.repeat(5000)}}`)
      .set('content-type', 'application/json');
    expect([deep.status, deep.body.issues[0].message]).toEqual([422, expect.stringContaining('64 levels')]);
  });

  it('a request is remembered for 30 days', async () => {
    const keys = plane.api.app.get(IdempotencyKeys);
    const id = await createRun(caller, {}, { idempotencyKey: 'old' });
    expect(await keys.sweep(new Date(Date.now() + 29 * 86_400_000))).toBe(0);
    expect(await createRun(caller, {}, { idempotencyKey: 'old' })).toBe(id);
    expect(await keys.sweep(new Date(Date.now() + 31 * 86_400_000))).toBeGreaterThan(0);
    expect(await createRun(caller, {}, { idempotencyKey: 'old' })).not.toBe(id);
  });
});

describe('another team', () => {
  /** Every operation that takes an id, with how it is asked about the other team's things. A new one must be added here. */
  const covered: Record<string, string> = {
    'Query.node': 'query($id: ID!) { found: node(id: $id) { __typename } }',
    'Query.team': 'query($id: ID!) { found: team(id: $id) { name } }',
    'Query.run': 'query($id: ID!) { found: run(id: $id) { name } }',
    'Query.datasetImport': 'query($id: ID!) { found: datasetImport(id: $id) { state } }',
    'Mutation.createApiKey': 'mutation($id: ID!) { found: createApiKey(teamId: $id, name: "x") { __typename } }',
    'Mutation.revokeApiKey': 'mutation($id: ID!) { found: revokeApiKey(id: $id) { __typename } }',
    'Mutation.createRun': 'mutation($id: ID!) { found: createRun(spec: {}, clusterSpecId: $id) { __typename } }',
    'Mutation.cancelRun': 'mutation($id: ID!) { found: cancelRun(id: $id) { __typename } }',
    'Mutation.pauseRun': 'mutation($id: ID!) { found: pauseRun(id: $id) { __typename } }',
    'Mutation.resumeRun': 'mutation($id: ID!) { found: resumeRun(id: $id, servers: 2) { __typename } }',
    'Mutation.scaleRun': 'mutation($id: ID!) { found: scaleRun(id: $id, workers: 1) { __typename } }',
    'Mutation.extendRun': 'mutation($id: ID!) { found: extendRun(id: $id, epochs: 1) { __typename } }',
    'Mutation.setModelAlias': 'mutation($id: ID!) { found: setModelAlias(name: "a:b", runId: $id) { __typename } }',
    'Mutation.setTeamLimits': '', // FORBIDDEN for all but the administrator
    'Subscription.runEvents': '', // live.test.ts
    'Subscription.runMetrics': '',
  };

  it('finds nothing under any id, by any operation or path', async () => {
    const owner = await plane.team('owners');
    const stranger = await plane.team('strangers');
    const runId = await createRun(owner, { name: 'secret' });
    const spec = await owner.gql(
      'mutation { createClusterSpec(input: { name: "c" }) { ... on CreateClusterSpecSuccess { clusterSpec { id } } } }',
    );
    const viewer = await owner.gql('{ viewer { apiKey { id } } }');
    const ids = [runId, spec.data.createClusterSpec.clusterSpec.id, viewer.data.viewer.apiKey.id, owner.teamId];
    for (const id of ids) {
      expect((await owner.gql(covered['Query.node']!, { id })).data.found, 'its owner finds it').not.toBeNull();
      for (const [operation, query] of Object.entries(covered).filter(([, text]) => text)) {
        const { data, errors } = await stranger.gql(query, { id });
        expect(errors, operation).toBeUndefined();
        expect(data.found === null || data.found.__typename === 'NotFound', `${operation} ${JSON.stringify(data)}`).toBe(true);
      }
    }
    for (const path of ['', '/events', '/weights', '/attempts', '/checkpoints']) {
      const { status, body } = await stranger.get(`/api/v1/runs/${runId}${path}`);
      expect([status, body.code], path).toEqual([404, 'NOT_FOUND']);
    }
    for (const path of ['cancel', 'pause', 'resume', 'scale', 'extend'])
      expect((await stranger.post(`/api/v1/runs/${runId}/${path}`)).status, path).toBe(404);
    const theirs = await stranger.gql('mutation($id: ID!) { createRun(spec: {}, resumeFrom: { runId: $id }) { __typename } }', {
      id: runId,
    });
    expect(theirs.data.createRun.__typename).toBe('NotFound');
    const lists = await stranger.gql(
      '{ runs { totalCount edges { node { id } } } clusterSpecs { id } viewer { team { apiKeys { id } } } }',
    );
    expect(JSON.stringify(lists.data)).not.toMatch(new RegExp(ids.slice(0, 3).join('|')));
    expect((await owner.gql('query($id: ID!) { run(id: $id) { status } }', { id: runId })).data.run.status).toBe('QUEUED');
  });

  it('is asked about here for every field that takes an id', async () => {
    const schema = await buildSchema();
    const takesId = (field: GraphQLField<unknown, unknown>) =>
      field.args.some(
        ({ type }) =>
          !(type instanceof GraphQLList || (type instanceof GraphQLNonNull && type.ofType instanceof GraphQLList)) &&
          getNamedType(type).name === 'ID',
      );
    const found = [schema.getQueryType()!, schema.getMutationType()!, schema.getSubscriptionType()!].flatMap((type) =>
      Object.values(type.getFields())
        .filter(takesId)
        .map((field) => `${type.name}.${field.name}`),
    );
    expect(found.sort()).toEqual(Object.keys(covered).sort());
  });
});

describe('limits of a team', () => {
  const SET_LIMITS =
    'mutation($id: ID!, $limits: TeamLimitsInput!) { setTeamLimits(teamId: $id, limits: $limits) { __typename ... on SetTeamLimitsSuccess { team { limits { activeRuns serverPlaces workers parameters datasetBytes } } } ... on InvalidInput { issues { path } } } }';
  const LIMITED = CREATE_RUN.replace('... on NotFound', '... on LimitReached { code message limit most used asked } ... on NotFound');

  it('are set by the administrator alone, shown to the team, and refuse what goes beyond with the numbers', async () => {
    const team = await plane.team('limited');
    const limits = { activeRuns: 3, serverPlaces: 2 };
    expect((await team.gql(SET_LIMITS, { id: team.teamId, limits })).errors?.[0]?.extensions.code).toBe('FORBIDDEN');
    const wrong = await plane.admin.gql(SET_LIMITS, { id: team.teamId, limits: { parameters: -1 } });
    expect(wrong.data.setTeamLimits.issues).toEqual([{ path: 'limits.parameters' }]);
    const set = await plane.admin.gql(SET_LIMITS, { id: team.teamId, limits });
    expect(set.data.setTeamLimits.team.limits).toEqual({
      activeRuns: 3,
      serverPlaces: 2,
      workers: null,
      parameters: null,
      datasetBytes: 200e9,
    });
    const large = await team.gql(LIMITED, { spec: { strategy: { kind: 'parameter-server', servers: 3 } } });
    expect(large.data.createRun).toMatchObject({ code: 'LIMIT_REACHED', limit: 'serverPlaces', most: 2, used: 0, asked: 3 });
    // Eight at the same moment: the last place is taken once.
    const answers = await Promise.all(Array.from({ length: 8 }, () => team.gql(LIMITED, { spec: {} })));
    const names = answers.map(({ data }) => data.createRun.__typename as string);
    expect(names.filter((name) => name === 'CreateRunSuccess')).toHaveLength(3);
    const refused = answers.find(({ data }) => data.createRun.__typename === 'LimitReached')!.data.createRun;
    expect(refused).toMatchObject({ limit: 'activeRuns', most: 3, used: 3, asked: 1 });
    const shown = await team.gql('{ viewer { team { limits { activeRuns } used { activeRuns serverPlaces workers parameters } } } }');
    expect(shown.data.viewer.team).toMatchObject({ limits: { activeRuns: 3 }, used: { activeRuns: 3, serverPlaces: 3, workers: 0 } });
    const { status, body } = await team.post('/api/v1/runs').send({});
    expect([status, body.code]).toEqual([409, 'LIMIT_REACHED']);
    // Null takes the limit of all teams again.
    await plane.admin.gql(SET_LIMITS, { id: team.teamId, limits: { activeRuns: null } });
    await createRun(team);
  });

  it('hold for keys that are made at the same moment', async () => {
    const team = await plane.team('key-makers');
    const client = new pg.Client({ connectionString: plane.postgres.url });
    await client.connect();
    await client.query(
      `INSERT INTO "ApiKey" ("id", "teamId", "name", "prefix", "hash") SELECT gen_random_uuid(), $1, 'k', 'limit' || n, int4send(n) FROM generate_series(1, 195) n`,
      [team.teamId],
    );
    const make = 'mutation($id: ID!) { createApiKey(teamId: $id, name: "x") { __typename } }';
    const made = await Promise.all(Array.from({ length: 8 }, () => team.gql(make, { id: team.teamId })));
    expect(made.filter(({ data }) => data?.createApiKey.__typename === 'CreateApiKeySuccess')).toHaveLength(4);
    const { rows } = await client.query('SELECT count(*)::int AS n FROM "ApiKey" WHERE "teamId" = $1', [team.teamId]);
    await client.end();
    expect(rows[0].n).toBe(200);
  });
});

describe('many runs at once', () => {
  it('are made or refused with 429 before anything is written: as many runs as answers with one', async () => {
    const team = await plane.team('burst');
    const replies = await Promise.all(Array.from({ length: 80 }, () => team.post('/api/v1/runs').send({})));
    const statuses = replies.map(({ status }) => status);
    expect([...new Set(statuses)].sort()).toEqual([201, 429]);
    const refused = replies.find(({ status }) => status === 429)!;
    expect([refused.body.code, refused.headers['retry-after']]).toEqual(['TOO_BUSY', '2']);
    const { totalCount } = (await team.gql('{ runs { totalCount } }')).data.runs;
    expect(totalCount).toBe(statuses.filter((status) => status === 201).length);
  });

  it('a run whose commit was not answered is answered all the same, and its answer asks nothing more of PostgreSQL', async () => {
    const team = await plane.team('unanswered');
    const database = plane.api.app.get(Database);
    const transact = database.transact.bind(database);
    database.transact = async (work) => {
      await transact(work);
      throw new Error('Connection terminated unexpectedly');
    };
    try {
      const { status, body } = await team.post('/api/v1/runs').send({ name: 'committed' });
      expect([status, body.name, body.status]).toEqual([201, 'committed', 'QUEUED']);
      expect((await team.gql('{ runs { totalCount } }')).data.runs.totalCount).toBe(1);
    } finally {
      database.transact = transact;
    }
  });
});
