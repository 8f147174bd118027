/** Every GraphQL document that the client sends. A test validates them against docs/reference/schema.graphql. */

const API_KEY = 'id name prefix createdAt lastUsedAt revokedAt expiresAt isReadOnly';
const TEAM = `id name createdAt apiKeys { ${API_KEY} }`;
const TEAM_LIMITS = 'activeRuns serverPlaces workers parameters datasetBytes';
const CLUSTER_SPEC = 'id name createdAt servers workers';
const MEMBER = 'id name status host pid version protocolVersion rssBytes lastSeenAt startedAt runId';
const RUN_SUMMARY = `id name status statusReason statusChangedAt attempt restartsLeft workersWanted createdAt startedAt finishedAt parameterCount
  progress { phase round totalRounds epoch totalEpochs loss accuracy values validation examplesPerSecond etaSeconds workers replicas waitingFor }
  result { rounds loss accuracy meanAbsoluteError meanSquaredError values weightsRound examplesPerSecond trainedExamples trainingMs weightsSha256 weightsUrl }`;
const RUN = `${RUN_SUMMARY} spec clusterSpec { ${CLUSTER_SPEC} }
  staleness
  course { metric better best { round values } last { round values } reductions { round was factor } }
  ledger { committedRounds committedExamples droppedExamples expectedExamples refusedFrames refusedConnections }
  statusHistory { from to reason attempt at }
  stepTasks { id seat n state worker { id name } replicas createdAt }
  servers { index role term serverId address state }
  attempts { number createdAt startedAt endedAt endCause endReason endRound fromRound parentNumber parentRunId }`;
const CHECKPOINT = 'attempt round totalRounds bytes sha256 loss reason state createdAt';
const DATASET_VERSION = 'id version rows bytes columnCount source createdAt createdBy';
const DATASET = `id name isBuiltIn title trainExamples evalExamples format license source createdAt newest { ${DATASET_VERSION} }`;
const DATASET_IMPORT = 'id name state reason rows bytes totalBytes version createdAt finishedAt';
const EVENT = 'seq type message data at attempt';
const INVALID_INPUT = '... on InvalidInput { code message issues { path message } }';
const NOT_FOUND = '... on NotFound { code message }';
const CONFLICT = '... on Conflict { code message }';
const LIMIT = '... on LimitReached { code message limit most used asked }';
const CHANGED = `__typename ... on ChangeRunSuccess { run { ${RUN} } } ${INVALID_INPUT} ${NOT_FOUND} ${CONFLICT} ${LIMIT}`;

export const DOCUMENTS = {
  viewer: `query viewer { viewer { isAdmin apiKey { ${API_KEY} } team { ${TEAM} } } }`,
  node: `query node($id: ID!) { node(id: $id) { __typename id } }`,
  team: `query team($id: ID!) { team(id: $id) { ${TEAM} } }`,
  clusterSpecs: `query clusterSpecs { clusterSpecs { ${CLUSTER_SPEC} } }`,
  datasets: `query datasets($first: Int, $after: String) {
    datasets(first: $first, after: $after) { totalCount edges { node { ${DATASET} } } pageInfo { hasNextPage endCursor } } }`,
  dataset: `query dataset($name: String!, $version: String, $columns: Int, $offset: Int) { dataset(name: $name) { ${DATASET}
    version(version: $version) { ${DATASET_VERSION} schema(first: $columns, offset: $offset) { label untrainedClasses isOrdered droppedRows splits { name rows bytes shards }
      columns { name kind dtype shape vocabularySize vocabulary statistics } } }
    versions { ${DATASET_VERSION} } runs { id name status createdAt } } }`,
  datasetPreview: `query datasetPreview($name: String!, $version: String, $rows: Int, $from: Int, $split: String, $columns: [String!]) { dataset(name: $name) {
    version(version: $version) { version preview(rows: $rows, from: $from, split: $split, columns: $columns) { columns rows } } } }`,
  datasetImports: `query datasetImports($first: Int) { datasetImports(first: $first) { ${DATASET_IMPORT} } }`,
  datasetImport: `query datasetImport($id: ID!) { datasetImport(id: $id) { ${DATASET_IMPORT} } }`,
  importDataset: `mutation importDataset($name: String!, $url: String, $uploads: [ID!], $options: DatasetImportOptions, $idempotencyKey: String) {
    importDataset(name: $name, url: $url, uploads: $uploads, options: $options, idempotencyKey: $idempotencyKey) {
    __typename ... on ImportDatasetSuccess { import { ${DATASET_IMPORT} } } ${INVALID_INPUT} ${NOT_FOUND} ${CONFLICT} ${LIMIT} } }`,
  removeDataset: `mutation removeDataset($dataset: String!, $force: Boolean) { removeDataset(dataset: $dataset, force: $force) {
    __typename ... on RemoveDatasetSuccess { name versions } ${NOT_FOUND} ${CONFLICT} } }`,
  modelAliases: `query modelAliases($name: String) { modelAliases(name: $name) { name runId round updatedAt } }`,
  setModelAlias: `mutation setModelAlias($name: String!, $runId: ID!, $round: Int) { setModelAlias(name: $name, runId: $runId, round: $round) {
    __typename ... on SetModelAliasSuccess { alias { name runId round updatedAt } } ${INVALID_INPUT} ${NOT_FOUND} } }`,
  removeModelAlias: `mutation removeModelAlias($name: String!) { removeModelAlias(name: $name) {
    __typename ... on RemoveModelAliasSuccess { name } ${NOT_FOUND} } }`,
  run: `query run($id: ID!) { run(id: $id) { ${RUN} } }`,
  runs: `query runs($first: Int, $after: String, $status: [RunStatus!], $name: String) {
    runs(first: $first, after: $after, status: $status, name: $name) { totalCount edges { node { ${RUN_SUMMARY} } } pageInfo { hasNextPage endCursor } } }`,
  runsMeant: `query runsMeant($reference: String!) { runsMeant(reference: $reference) { ${RUN_SUMMARY} } }`,
  runProgress: `query runProgress($id: ID!) { run(id: $id) { ${RUN_SUMMARY} } }`,
  eventsOfRun: `query eventsOfRun($id: ID!, $first: Int, $after: String) {
    run(id: $id) { events(first: $first, after: $after) { edges { node { ${EVENT} } } pageInfo { hasNextPage endCursor } } } }`,
  lastEventsOfRun: `query lastEventsOfRun($id: ID!, $last: Int) {
    run(id: $id) { events(first: null, last: $last) { edges { node { ${EVENT} } } pageInfo { hasNextPage endCursor } } } }`,
  metricsOfRun: `query metricsOfRun($id: ID!, $names: [String!]!, $fromRound: Int, $toRound: Int, $maxPoints: Int) {
    run(id: $id) { metrics(names: $names, fromRound: $fromRound, toRound: $toRound, maxPoints: $maxPoints) { name points { round rounds value min max atMs } } } }`,
  workers: `query workers { workers { ${MEMBER} engine engines { name fingerprint examplesPerSecond isChosen } devices { name type memoryBytes } } }`,
  servers: `query servers { servers { ${MEMBER} } }`,
  createTeam: `mutation createTeam($name: String!, $idempotencyKey: String) { createTeam(name: $name, idempotencyKey: $idempotencyKey) {
    __typename ... on CreateTeamSuccess { team { ${TEAM} } } ${INVALID_INPUT} ${CONFLICT} } }`,
  setTeamLimits: `mutation setTeamLimits($teamId: ID!, $limits: TeamLimitsInput!) { setTeamLimits(teamId: $teamId, limits: $limits) {
    __typename ... on SetTeamLimitsSuccess { team { ${TEAM} limits { ${TEAM_LIMITS} } used { ${TEAM_LIMITS} } } } ${INVALID_INPUT} ${NOT_FOUND} } }`,
  createApiKey: `mutation createApiKey($teamId: ID!, $name: String!, $expiresAt: DateTime, $readOnly: Boolean, $idempotencyKey: String) {
    createApiKey(teamId: $teamId, name: $name, expiresAt: $expiresAt, readOnly: $readOnly, idempotencyKey: $idempotencyKey) {
    __typename ... on CreateApiKeySuccess { apiKey { ${API_KEY} } secret } ${INVALID_INPUT} ${NOT_FOUND} ${CONFLICT} } }`,
  revokeApiKey: `mutation revokeApiKey($id: ID!) { revokeApiKey(id: $id) { __typename ... on RevokeApiKeySuccess { apiKey { ${API_KEY} } } ${NOT_FOUND} ${CONFLICT} } }`,
  createClusterSpec: `mutation createClusterSpec($input: CreateClusterSpecInput!, $idempotencyKey: String) { createClusterSpec(input: $input, idempotencyKey: $idempotencyKey) {
    __typename ... on CreateClusterSpecSuccess { clusterSpec { ${CLUSTER_SPEC} } } ${INVALID_INPUT} ${CONFLICT} } }`,
  createRun: `mutation createRun($spec: RunSpecInput!, $clusterSpecId: ID, $idempotencyKey: String, $resumeFrom: ResumeFromInput) {
    createRun(spec: $spec, clusterSpecId: $clusterSpecId, idempotencyKey: $idempotencyKey, resumeFrom: $resumeFrom) {
    __typename ... on CreateRunSuccess { run { ${RUN} } } ${INVALID_INPUT} ${NOT_FOUND} ${CONFLICT} ${LIMIT} } }`,
  cancelRun: `mutation cancelRun($id: ID!) { cancelRun(id: $id) { __typename ... on CancelRunSuccess { run { ${RUN} } } ${NOT_FOUND} ${CONFLICT} } }`,
  pauseRun: `mutation pauseRun($id: ID!) { pauseRun(id: $id) { ${CHANGED} } }`,
  resumeRun: `mutation resumeRun($id: ID!, $servers: Int) { resumeRun(id: $id, servers: $servers) { ${CHANGED} } }`,
  scaleRun: `mutation scaleRun($id: ID!, $workers: Int!) { scaleRun(id: $id, workers: $workers) { ${CHANGED} } }`,
  extendRun: `mutation extendRun($id: ID!, $rounds: Int, $epochs: Int, $idempotencyKey: String) { extendRun(id: $id, rounds: $rounds, epochs: $epochs, idempotencyKey: $idempotencyKey) { ${CHANGED} } }`,
  predictionsOfRun: `query predictionsOfRun($id: ID!) { run(id: $id) { status predictions { state reason examples measured split outputs { __typename
    ... on PredictedClasses { kind name count accuracy classes labels matrix confusions { truth prediction count }
      scores { label count predicted precision recall f1 } wrongCount columns wrong { example step truth prediction probability image cells } }
    ... on PredictedValues { kind name count meanAbsoluteError rootMeanSquaredError rSquared points columns worst { example truth prediction image cells } }
    ... on UnpicturedOutput { kind name reason } } } } }`,
  checkpointsOfRun: `query checkpointsOfRun($id: ID!) { run(id: $id) { checkpoints { ${CHECKPOINT} } } }`,
  runEvents: `subscription runEvents($runId: ID!, $afterSeq: Int) { runEvents(runId: $runId, afterSeq: $afterSeq) { ${EVENT} } }`,
  runMetrics: `subscription runMetrics($runId: ID!, $afterRound: Int) {
    runMetrics(runId: $runId, afterRound: $afterRound) { seq round rounds epoch loss accuracy values validation examplesPerSecond roundMs } }`,
} as const;
