/**
 * The users of Redis, one for each kind of process: what each may touch, as rules of its access control lists. A worker runs the models
 * of every team, so what it can do with its password is no more than what its work needs.
 *
 *     user     reads and writes                          reads             appends
 *     api      all queues, everything of `paceline:`    -                 -
 *     ps       the queue of placements                   control hashes    the report stream
 *     worker   the queues of step tasks and of worker    control hashes    the report stream
 *              placements
 *
 * Nobody of them lists keys, flushes, sees other clients or changes the configuration: that is the user `default`, whose password no
 * process has. Who appends to a stream may shorten it too: reports that were lost are published again. The passwords of the three are made from it, each in one direction, so that changing it changes all.
 *
 * It imports nothing of ours: the image that makes the secrets of docker-compose.yml carries this one file of the build.
 */
import { createHash, createHmac } from 'node:crypto';

export const REDIS_ROLES = ['api', 'ps', 'worker'] as const;
export type RedisRole = (typeof REDIS_ROLES)[number];

/** The first version that tells reading a key from writing it. Before it, those who may read a key may write it too. */
const SPLITS_READ_AND_WRITE = 7;

/** Commands on keys of each type, and what BullMQ and ioredis send: scripts, transactions, `INFO` when they connect. */
const COMMANDS = [
  ...['-@all', '+@hash', '+@list', '+@set', '+@sortedset', '+@string', '+@connection', '+@transaction'],
  ...['+xadd', '+xtrim', '+del', '+unlink', '+exists', '+expire', '+pexpire', '+pexpireat', '+pttl', '+type', '+time'],
  ...['-@dangerous', '-@admin', '+eval', '+evalsha', '+script|load', '+script|exists', '+info'],
];

/** Letters say how: `RW`, `R` or `W`. */
const KEYS: Readonly<Record<RedisRole, readonly (readonly [how: 'RW' | 'R' | 'W', pattern: string])[]>> = {
  api: [
    ['RW', 'bull:paceline-placements:*'],
    ['RW', 'bull:paceline-step-tasks:*'],
    ['RW', 'bull:paceline-worker-placements:*'],
    ['RW', 'paceline:*'],
  ],
  ps: [
    ['RW', 'bull:paceline-placements:*'],
    ['R', 'paceline:control:*'],
    ['W', 'paceline:reports'],
  ],
  worker: [
    ['RW', 'bull:paceline-step-tasks:*'],
    ['RW', 'bull:paceline-worker-placements:*'],
    ['R', 'paceline:control:*'],
    ['W', 'paceline:reports'],
  ],
};

/** The apis read the report stream, and tell each other of revoked keys. */
const COMMANDS_OF_THE_API = ['+@stream', '&paceline:revoked-keys', '+publish', '+subscribe', '+unsubscribe'];

/** The password of a role's user: nobody can go back from it to `password`, that of the user `default`, or to another role's. */
export function redisPassword(password: string, role: RedisRole): string {
  return createHmac('sha256', password).update(`paceline redis user ${role}`).digest('base64url');
}

/**
 * Lines for redis.conf that make the users of all roles.
 * @param majorVersion of the server
 */
export function redisUserLines(password: string, majorVersion: number): string[] {
  return REDIS_ROLES.map((role) => {
    const hash = createHash('sha256').update(redisPassword(password, role)).digest('hex');
    const keys = KEYS[role].map(([how, pattern]) =>
      how === 'RW' || majorVersion < SPLITS_READ_AND_WRITE ? `~${pattern}` : `%${how}~${pattern}`,
    );
    return [
      'user',
      role,
      'on',
      `#${hash}`,
      'resetkeys',
      'resetchannels',
      ...keys,
      ...COMMANDS,
      ...(role === 'api' ? COMMANDS_OF_THE_API : []),
    ].join(' ');
  });
}
