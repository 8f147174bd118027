/**
 * The secrets of `docker compose up`: makes each once, at the first start, into a volume of its own, and says how to sign in.
 * A secret that the environment gives (from `.env`) is taken instead. Each container mounts the volumes that it needs and no others.
 * The password of Redis is the operator's; each process has a user of its own, with a password that is made from it.
 *
 *     given, none stored     -> stored
 *     given, another stored  -> replaced; but PostgreSQL keeps the password of its first start: refused, with what to do
 *     not given, none stored -> made
 *     not given, stored      -> kept
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REDIS_ROLES, redisPassword, redisUserLines } from '../libs/runtime/dist/redis-users.js';

const folder = process.argv[2] ?? '/secrets';
/** The image that docker-compose.yml names. */
const REDIS_MAJOR_VERSION = 8;
const hex = (bytes) => randomBytes(bytes).toString('hex');

const SECRETS = [
  { variable: 'POSTGRES_PASSWORD', file: 'postgres/password', least: 8, make: () => hex(24), isFixed: true },
  { variable: 'REDIS_PASSWORD', file: 'redis/password', least: 8, make: () => hex(24) },
  { variable: 'PACELINE_TOKEN_SECRET', file: 'token/secret', least: 32, make: () => hex(32) },
  {
    variable: 'PACELINE_BOOTSTRAP_KEY',
    file: 'key/bootstrap-key',
    least: 20,
    make: () => `pcl_${hex(6)}_${randomBytes(24).toString('base64url')}`,
  },
];

/** Written whole or not at all, readable by the user of each container that mounts the volume. */
function store(file, text) {
  const path = join(folder, file);
  writeFileSync(`${path}.new`, text, { mode: 0o444 });
  renameSync(`${path}.new`, path);
}

function fail(message) {
  console.error(message);
  process.exit(78);
}

/** Checks one; nothing is stored before all are right. @returns {{file: string, secret: string, isNew: boolean}} the secret that counts from now on */
function settle({ variable, file, least, make, isFixed = false }) {
  const path = join(folder, file);
  const stored = existsSync(path) ? readFileSync(path, 'utf8') : undefined;
  const given = process.env[variable] || undefined;
  if (given !== undefined && (given.length < least || /[\0\r\n]/u.test(given)))
    fail(`${variable} in .env must be one line of at least ${least} characters. Leave it away to have one made.`);
  if (isFixed && given !== undefined && stored !== undefined && given !== stored)
    fail(
      `${variable} in .env differs from the password that the database was made with. Put the old one back, or leave it away; ` +
        'to begin with an empty database instead: docker compose down --volumes',
    );
  const secret = given ?? stored ?? make();
  return { file, secret, isNew: secret !== stored };
}

const settled = SECRETS.map(settle);
const [, operatorPassword, , key] = settled.map(({ secret }) => secret);
const quoted = operatorPassword.replace(/["\\]/gu, '\\$&');
store('redis/redis.conf', `${[`requirepass "${quoted}"`, ...redisUserLines(operatorPassword, REDIS_MAJOR_VERSION)].join('\n')}\n`);
for (const role of REDIS_ROLES) store(`redis-${role}/password`, redisPassword(operatorPassword, role));
for (const { file, secret, isNew } of settled) if (isNew) store(file, secret);

/** A year: they are made anew at a start in their last third, and running processes take them by themselves. */
const CERTIFICATE_DAYS = 365;
if (process.env.PACELINE_TLS && process.env.PACELINE_TLS !== 'on') fail('PACELINE_TLS in .env must be on, or not set.');
if (process.env.PACELINE_TLS) {
  const { keepCertificates } = await import('../libs/runtime/dist/tls/certificates.js');
  const folderOf = (role) => join(folder, role === 'server' ? 'tls-ps' : 'tls-worker');
  const { endsAtMs } = await keepCertificates({ folder: join(folder, 'tls-ca'), folderOf, nowMs: Date.now(), days: CERTIFICATE_DAYS });
  console.log(
    `TCP between servers and workers is encrypted. Certificates end on ${new Date(endsAtMs).toISOString().slice(0, 10)}; a start in their last third renews them.`,
  );
}

const url = `http://127.0.0.1:${process.env.PACELINE_PORT || 4100}`;
console.log(`Paceline comes up at ${url}
Sign in with this key, or open ${url}/#key=${encodeURIComponent(key)}
  ${key}
Train, in another terminal:
  npm ci && npm run build
  export PACELINE_URL=${url} PACELINE_API_KEY=${key}
  npx paceline train --epochs 1
This text again: docker compose logs secrets`);
