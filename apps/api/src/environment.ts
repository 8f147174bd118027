/** The environment of the api, parsed once at its start. Everything behind it gets `Settings` and never reads process.env. */
import type { TeamLimits } from '@paceline/control-plane';
import { readEnvironment, VARIABLES } from '@paceline/runtime';

export const ENVIRONMENT = {
  DATABASE_URL: VARIABLES.DATABASE_URL,
  REDIS_URL: VARIABLES.REDIS_URL,
  PACELINE_HOST: VARIABLES.PACELINE_HOST,
  PACELINE_PORT: VARIABLES.PACELINE_PORT,
  PACELINE_TOKEN_SECRET: VARIABLES.PACELINE_TOKEN_SECRET,
  PACELINE_BOOTSTRAP_KEY: VARIABLES.PACELINE_BOOTSTRAP_KEY,
  PACELINE_DASHBOARD_DIR: VARIABLES.PACELINE_DASHBOARD_DIR,
  PACELINE_TEAM_ACTIVE_RUNS: VARIABLES.PACELINE_TEAM_ACTIVE_RUNS,
  PACELINE_TEAM_SERVER_PLACES: VARIABLES.PACELINE_TEAM_SERVER_PLACES,
  PACELINE_TEAM_WORKERS: VARIABLES.PACELINE_TEAM_WORKERS,
  PACELINE_TEAM_PARAMETERS: VARIABLES.PACELINE_TEAM_PARAMETERS,
  PACELINE_TEAM_DATASET_BYTES: VARIABLES.PACELINE_TEAM_DATASET_BYTES,
  PACELINE_TEAM_SHARE_PERCENT: VARIABLES.PACELINE_TEAM_SHARE_PERCENT,
  // Only for handing out weights: without it the api answers that it has none.
  PACELINE_DATA_DIR: VARIABLES.PACELINE_DATA_DIR.optional(),
  PACELINE_DATA_STORE: VARIABLES.PACELINE_DATA_STORE,
  // Only for handing out models of checkpoints.
  PACELINE_CHECKPOINT_STORE: VARIABLES.PACELINE_CHECKPOINT_STORE,
  PACELINE_TRUSTED_PROXIES: VARIABLES.PACELINE_TRUSTED_PROXIES,
  PACELINE_IMPORT_HOSTS: VARIABLES.PACELINE_IMPORT_HOSTS,
  PACELINE_METRICS_TOKEN: VARIABLES.PACELINE_METRICS_TOKEN,
  PACELINE_REQUESTS_PER_MINUTE: VARIABLES.PACELINE_REQUESTS_PER_MINUTE,
  PACELINE_SOCKETS_PER_KEY: VARIABLES.PACELINE_SOCKETS_PER_KEY,
  PACELINE_SOCKETS_PER_TEAM: VARIABLES.PACELINE_SOCKETS_PER_TEAM,
} as const;

/** Everything the api is told from outside. */
export class Settings {
  readonly databaseUrl!: string;
  readonly redisUrl!: string;
  readonly host!: string;
  /** 0 takes a free port. */
  readonly port!: number;
  readonly tokenSecret!: string;
  readonly bootstrapKey?: string | undefined;
  readonly dashboardDir?: string | undefined;
  readonly dataDir?: string | undefined;
  /** A folder or s3://…; without it there are only the built-in datasets. */
  readonly dataStore?: string | undefined;
  /** Where servers write checkpoints; `dataDir` when not given. */
  readonly checkpointStore?: string | undefined;
  /** For teams that have none of their own; `DEFAULT_TEAM_LIMITS` by default. */
  readonly teamLimits?: TeamLimits | undefined;
  /** `DEFAULT_TEAM_SHARE` by default. */
  readonly teamShare?: number | undefined;
  /** Addresses and CIDR ranges. */
  readonly trustedProxies?: readonly string[] | undefined;
  /** Hosts that datasets may be imported from, such as `*.example.org`. Left out: every public host. */
  readonly importHosts?: readonly string[] | undefined;
  readonly metricsToken?: string | undefined;
  /** Requests that one api key may send. Left out or 0, here and below: any number. */
  readonly requestsPerMinute?: number | undefined;
  readonly socketsPerKey?: number | undefined;
  readonly socketsPerTeam?: number | undefined;
}

/** @throws EnvironmentError naming every wrong variable */
export function readSettings(env: NodeJS.ProcessEnv): Settings {
  const values = readEnvironment(ENVIRONMENT, env);
  return {
    databaseUrl: values.DATABASE_URL,
    redisUrl: values.REDIS_URL,
    host: values.PACELINE_HOST,
    port: values.PACELINE_PORT,
    tokenSecret: values.PACELINE_TOKEN_SECRET,
    bootstrapKey: values.PACELINE_BOOTSTRAP_KEY,
    dashboardDir: values.PACELINE_DASHBOARD_DIR,
    dataDir: values.PACELINE_DATA_DIR,
    dataStore: values.PACELINE_DATA_STORE,
    checkpointStore: values.PACELINE_CHECKPOINT_STORE,
    teamLimits: {
      activeRuns: values.PACELINE_TEAM_ACTIVE_RUNS || null,
      serverPlaces: values.PACELINE_TEAM_SERVER_PLACES || null,
      workers: values.PACELINE_TEAM_WORKERS || null,
      parameters: values.PACELINE_TEAM_PARAMETERS || null,
      datasetBytes: values.PACELINE_TEAM_DATASET_BYTES || null,
    },
    teamShare: values.PACELINE_TEAM_SHARE_PERCENT / 100,
    trustedProxies: values.PACELINE_TRUSTED_PROXIES,
    importHosts: values.PACELINE_IMPORT_HOSTS,
    metricsToken: values.PACELINE_METRICS_TOKEN,
    requestsPerMinute: values.PACELINE_REQUESTS_PER_MINUTE,
    socketsPerKey: values.PACELINE_SOCKETS_PER_KEY,
    socketsPerTeam: values.PACELINE_SOCKETS_PER_TEAM,
  };
}
