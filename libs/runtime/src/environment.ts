/**
 * The environment is parsed once per process, at its start, by one schema whose keys are the variable names.
 * Everything that is wrong is reported together, each with what to do, before anything is opened.
 *
 * `VARIABLES` describes every variable of Paceline; an app picks those it reads:
 *
 *     const env = readEnvironment({ REDIS_URL: VARIABLES.REDIS_URL, PACELINE_PORT: VARIABLES.PACELINE_PORT });
 *
 * An empty variable counts as not set, as compose files and shells produce them. `NAME_FILE` names a file that holds the value of NAME, for
 * secrets that are mounted; a password of a database may be given apart from its address, with any characters in it.
 */
import { readFileSync } from 'node:fs';
import { isIP, isIPv6 } from 'node:net';
import { z } from 'zod';
import { UserError } from './user-error.js';

export interface EnvironmentIssue {
  readonly variable: string;
  readonly message: string;
  /** What the variable is for. */
  readonly description: string;
}

/** Code ENVIRONMENT_INVALID, exit 78. `issues` names every wrong variable; values are never repeated, they may be secrets. */
export class EnvironmentError extends UserError {
  override readonly name = 'EnvironmentError';
  readonly issues: readonly EnvironmentIssue[];

  constructor(issues: readonly EnvironmentIssue[]) {
    const lines = issues.map((issue) => `  ${issue.variable}: ${issue.message}${issue.description ? ` (${issue.description})` : ''}`);
    super('ENVIRONMENT_INVALID', `The environment is wrong:\n${lines.join('\n')}`, {
      exit: 'configuration',
      hint: `Set ${issues.map((issue) => issue.variable).join(', ')} and start again.`,
    });
    this.issues = issues;
  }
}

const urlOf = (protocols: RegExp, example: string) =>
  z
    .string()
    .refine((value) => URL.canParse(value) && protocols.test(new URL(value).protocol), { error: `must be an address like ${example}` });

const port = z
  .string()
  .regex(/^\d{1,5}$/, 'must be a port number from 0 to 65535')
  .transform(Number)
  .refine((n) => n <= 65_535, 'must be a port number from 0 to 65535');
const wholeNumber = z
  .string()
  .regex(/^\d{1,9}$/, 'must be a whole number, 0 to turn it off')
  .transform(Number);
const byteCount = z
  .string()
  .regex(/^\d{1,15}$/, 'must be a whole number of bytes, 0 to turn it off')
  .transform(Number);
const STOP_MS = 'must be a whole number of milliseconds from 5000 to 600000';
/** `20mbit,30ms`: bits a second and milliseconds, each way. */
const LINK = /^(\d{1,6}(?:\.\d{1,3})?)(kbit|mbit|gbit)(?:,(\d{1,5})ms)?$/;
const BITS = { kbit: 1e3, mbit: 1e6, gbit: 1e9 };
const LEAST_LINK_BYTES = 1e3;

/** What the text of a slow link says; undefined: it is none. */
export function linkOf(text: string): { readonly bytesPerSecond: number; readonly delayMs: number } | undefined {
  const [, rate, unit, delay = '0'] = LINK.exec(text) ?? [];
  const bytesPerSecond = (Number(rate) * BITS[unit as keyof typeof BITS]) / 8;
  return bytesPerSecond >= LEAST_LINK_BYTES ? { bytesPerSecond, delayMs: Number(delay) } : undefined;
}

const directory = z.string().refine((value) => !value.includes('\0'), 'must be a path');

/** An address, or a range of them like 10.0.0.0/8. */
function isAddressRange(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  if (isIP(address) === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (isIPv6(address) ? 128 : 32));
}

/** A name, or with `*.` in front all names below it. */
const IMPORT_HOST = /^(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;

/** Every variable that a process of Paceline reads. `describe` is what people read in errors and in the reference. */
export const VARIABLES = {
  DATABASE_URL: urlOf(/^postgres(ql)?:$/, 'postgresql://user:password@host:5432/paceline').describe('PostgreSQL of the api'),
  DATABASE_PASSWORD: z.string().optional().describe('password of PostgreSQL, put into DATABASE_URL'),
  REDIS_URL: urlOf(/^rediss?:$/, 'redis://:password@host:6379').describe('Redis for the queues and reports'),
  REDIS_PASSWORD: z.string().optional().describe('password of Redis, put into REDIS_URL'),
  PACELINE_HOST: z.string().min(1).default('127.0.0.1').describe('address that the api listens on'),
  PACELINE_PORT: port.default(4100).describe('port that the api listens on; 0 takes a free one'),
  PACELINE_TOKEN_SECRET: z
    .string()
    .min(32, 'must be at least 32 characters')
    .describe('secret that signs data-plane tokens, the same for api and ps; make one with: openssl rand -hex 32'),
  PACELINE_BOOTSTRAP_KEY: z
    .string()
    .min(20, 'must be at least 20 characters')
    .optional()
    .describe(
      'api key of the administrator, made at the first start when not set; a new value takes the place of the old one, which is revoked',
    ),
  PACELINE_TRUSTED_PROXIES: z
    .string()
    .default('')
    .transform((text) => text.split(/[\s,]+/).filter(Boolean))
    .refine((ranges) => ranges.every(isAddressRange), 'must be addresses or ranges like 10.0.0.0/8, with commas between them')
    .describe('proxies whose X-Forwarded-For and X-Forwarded-Proto the api believes'),
  PACELINE_IMPORT_HOSTS: z
    .string()
    .default('')
    .transform((text) =>
      text
        .toLowerCase()
        .split(/[\s,]+/)
        .filter(Boolean),
    )
    .refine(
      (hosts) => hosts.every((host) => IMPORT_HOST.test(host)),
      'must be host names like data.example.org or *.example.org, with commas between them',
    )
    .describe('hosts that the api imports datasets from, `*.example.org` for all below one; without it every public host'),
  PACELINE_METRICS_TOKEN: z
    .string()
    .min(16, 'must be at least 16 characters')
    .optional()
    .describe('bearer token for /metrics; without it an administrator key reads them, and whoever asks from the same host without a proxy'),
  PACELINE_REQUESTS_PER_MINUTE: wholeNumber
    .default(3_000)
    .describe('requests and WebSocket messages that one api key may send to one api in a minute, a fifth of them at once; 0: any number'),
  PACELINE_SOCKETS_PER_KEY: wholeNumber.default(50).describe('WebSockets that one api key may have open at one api; 0: any number'),
  PACELINE_SOCKETS_PER_TEAM: wholeNumber.default(200).describe('WebSockets that one team may have open at one api; 0: any number'),
  PACELINE_DASHBOARD_DIR: directory.optional().describe('folder with the built dashboard'),
  PACELINE_DATA_DIR: directory.describe(
    'folder for weights and datasets; a worker without one holds no shards (strategies multi-worker-mirrored, model-parallel, mirrored, one-device and tpu)',
  ),
  PACELINE_CHECKPOINT_STORE: z
    .string()
    .optional()
    .describe(
      'where checkpoints lie: a folder that all parameter servers share, or s3://bucket/prefix?endpoint=...; PACELINE_DATA_DIR when not set',
    ),
  PACELINE_DATA_STORE: z
    .string()
    .optional()
    .describe(
      'where datasets of teams lie: a folder that the api and all workers share (workers only read), or s3://bucket/prefix?endpoint=...; without it there are only the built-in ones',
    ),
  PACELINE_DATA_CACHE: directory
    .optional()
    .describe(
      "folder in which a worker keeps shards of datasets from s3; several workers may share one; a folder in the user's cache when not set",
    ),
  PACELINE_DATA_CACHE_BYTES: byteCount
    .default(10 * 2 ** 30)
    .describe('bytes that this folder may take: the shards that were not used for longest go first; 0: no cache'),
  PACELINE_DATA_MEMORY_BYTES: byteCount
    .default(2 ** 30)
    .describe('bytes of memory in which a worker keeps rows of a dataset; what is over it is read by position; 0: everything is'),
  PACELINE_DATA_HOST: z
    .string()
    .regex(/^[^\s,]+(,[^\s,]+)*$/, 'must be a name or an address, or several with commas between them and no spaces')
    .max(255, 'must be at most 255 characters')
    .default('127.0.0.1')
    .describe(
      'name or address by which workers reach a parameter server, or a worker that holds shards; several with commas between them are tried in their order; own:NAME is its own among the addresses of NAME, for servers that share a name',
    ),
  PACELINE_DATA_BIND: z
    .string()
    .min(1)
    .optional()
    .describe('address on which a parameter server listens, for instance 0.0.0.0; PACELINE_DATA_HOST when not set'),
  PACELINE_DATA_PORT: port.default(0).describe('port of the data plane; 0 takes a free one'),
  PACELINE_SOCKET_DIR: directory.optional().describe('folder for Unix sockets of the data plane'),
  PACELINE_STOP_MS: z
    .string()
    .regex(/^\d{1,9}$/, STOP_MS)
    .transform(Number)
    .refine((ms) => ms >= 5_000 && ms <= 600_000, STOP_MS)
    .default(5_000)
    .describe(
      'milliseconds, 5000 to 600000 and 5000 when not set, that a parameter server has to finish the round and write a last checkpoint when it is told to end',
    ),
  PACELINE_TRANSPORT: z
    .enum(['auto', 'unix', 'tcp'], { error: 'must be auto, unix or tcp' })
    .default('auto')
    .describe('transport of the data plane'),
  PACELINE_TLS: z
    .enum(['on', 'off'], { error: 'must be on or off' })
    .default('off')
    .describe('whether the local stack encrypts TCP between workers and servers, as --tls does, with certificates of a CA of its own'),
  PACELINE_TLS_CA: directory
    .optional()
    .describe(
      'file with the CA of all certificates of the data plane, in PEM; with the next two, TCP between workers and servers is encrypted',
    ),
  PACELINE_TLS_CERT: directory.optional().describe("file with this process's certificate, in PEM"),
  PACELINE_TLS_KEY: directory.optional().describe('file with the key of this certificate, in PEM'),
  PACELINE_LINK: z
    .string()
    .refine((text) => linkOf(text) !== undefined, 'must be like 20mbit,30ms: at least 8kbit a second, and milliseconds each way')
    .transform((text) => linkOf(text)!)
    .optional()
    .describe('slows all connections of the data plane of a worker or server down to such a link, for tests: 20mbit,30ms each way'),
  PACELINE_TEAM_ACTIVE_RUNS: wholeNumber
    .default(200)
    .describe('runs of one team that are not over, where the team has no limit of its own (setTeamLimits); 0: no limit'),
  PACELINE_TEAM_SERVER_PLACES: wholeNumber.default(0).describe('places of parameter servers that one team may hold; 0: no limit'),
  PACELINE_TEAM_WORKERS: wholeNumber.default(0).describe('workers that runs of one team may hold; 0: no limit'),
  PACELINE_TEAM_PARAMETERS: wholeNumber.default(0).describe('parameters of all runs of one team that are not over; 0: no limit'),
  PACELINE_TEAM_DATASET_BYTES: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number, 0 to turn it off')
    .transform(Number)
    .default(200e9)
    .describe('bytes of all datasets of one team; 0: no limit'),
  PACELINE_TEAM_SHARE_PERCENT: wholeNumber
    .refine((percent) => percent >= 1 && percent <= 100, 'must be from 1 to 100')
    .default(75)
    .describe('most that one of several teams may hold of the places of parameter servers that the others leave'),
  PACELINE_LEAK_TENSORS: wholeNumber
    .default(200)
    .describe("more tensors in a worker's engine, rising from round to round, at which it starts its engine anew; 0: never"),
  PACELINE_LEAK_TENSORS_MB: wholeNumber.default(64).describe('the same for megabytes of tensors; 0: never'),
  PACELINE_LEAK_RSS_MB: wholeNumber
    .default(512)
    .describe(
      'the same for megabytes of the whole worker; when half of it remains without an engine, the process ends with code 71; 0: never',
    ),
  PACELINE_LOG_LEVEL: z
    .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], {
      error: 'must be fatal, error, warn, info, debug, trace or silent',
    })
    .default('info')
    .describe('how much is logged to stderr'),
  PACELINE_PREDECESSOR: z
    .string()
    .max(300)
    .optional()
    .describe('id and end of the process in whose place this one was started; set by its supervisor'),
  PACELINE_PARENT_PID: z
    .string()
    .regex(/^\d{1,10}$/, 'must be a process id')
    .transform(Number)
    .optional()
    .describe('process that this one ends with'),
} as const;

type Shape = Readonly<Record<string, z.ZodType>>;
type Values<S extends Shape> = { readonly [K in keyof S]: z.output<S[K]> };

/** Addresses whose password may be given by a variable of its own. */
const PASSWORDS: Readonly<Record<string, string>> = { DATABASE_URL: 'DATABASE_PASSWORD', REDIS_URL: 'REDIS_PASSWORD' };

/**
 * Reads and checks the variables of `shape`, their `_FILE` forms included.
 * @throws EnvironmentError naming every wrong variable
 */
export function readEnvironment<S extends Shape>(shape: S, env: NodeJS.ProcessEnv = process.env): Values<S> {
  const unreadable: EnvironmentIssue[] = [];
  const given: Record<string, string> = {};
  for (const key of Object.keys(shape)) {
    const value = valueOf(key, env, unreadable);
    if (value !== undefined) given[key] = value;
    const password = PASSWORDS[key] === undefined ? undefined : valueOf(PASSWORDS[key], env, unreadable);
    if (password !== undefined && value !== undefined) given[key] = withPassword(value, password);
  }
  const result = z.object(shape).safeParse(given);
  if (result.success && unreadable.length === 0) return result.data as Values<S>;
  const named = new Set(unreadable.map(({ variable }) => variable.replace(/_FILE$/, '')));
  const issues = (result.error?.issues ?? []).flatMap((issue): EnvironmentIssue[] => {
    const variable = String(issue.path[0]);
    if (named.has(variable)) return [];
    return [
      {
        variable,
        message: given[variable] === undefined ? 'is not set' : issue.message,
        description: shape[variable]?.description ?? '',
      },
    ];
  });
  throw new EnvironmentError([...unreadable, ...issues]);
}

/** The value of a variable, or what the file holds that `NAME_FILE` names, without the end of its last line. */
function valueOf(key: string, env: NodeJS.ProcessEnv, unreadable: EnvironmentIssue[]): string | undefined {
  const value = env[key] || undefined;
  const file = env[`${key}_FILE`] || undefined;
  if (file === undefined) return value;
  const variable = `${key}_FILE`;
  if (value !== undefined) {
    unreadable.push({ variable, message: `is set, and ${key} too: set one of them`, description: '' });
    return undefined;
  }
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '') || undefined;
  } catch (error) {
    unreadable.push({ variable, message: `names a file that cannot be read: ${(error as Error).message}`, description: '' });
    return undefined;
  }
}

/** The address with this password; an address that is none is left as it is, for the schema to refuse. */
function withPassword(address: string, password: string): string {
  if (!URL.canParse(address)) return address;
  const url = new URL(address);
  url.password = encodeURIComponent(password);
  return url.href;
}
