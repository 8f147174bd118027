/** The users of Redis on a real one: each can do its work, and nothing else. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startRedis, type RunningRedis } from './redis.js';
import { REDIS_ROLES, redisPassword, redisUserLines, type RedisRole } from './redis-users.js';

const temp = mkdtempSync(join(tmpdir(), 'paceline-redis-users-'));
let redis: RunningRedis;
const clients = {} as Record<RedisRole | 'operator', Redis>;

beforeAll(async () => {
  redis = await startRedis({ dataDir: join(temp, 'redis'), temporary: true });
  for (const role of REDIS_ROLES) clients[role] = new Redis(redis.urlOf(role));
  clients.operator = new Redis(redis.url);
  await clients.operator.hset('paceline:control:a-run', 'action', '1:pause');
  await clients.operator.set('paceline:writable', '1');
  await clients.operator.set('bull:paceline-placements:id', '1');
  await clients.operator.set('bull:paceline-step-tasks:id', '1');
});
afterAll(async () => {
  for (const client of Object.values(clients)) client.disconnect();
  await redis?.stop();
  rmSync(temp, { recursive: true, force: true });
});

const send = (role: RedisRole, [command, ...words]: readonly string[]): Promise<unknown> => clients[role].call(command!, ...words);

/** What nobody but the operator does. */
const OF_THE_OPERATOR = [
  ['FLUSHALL'],
  ['FLUSHDB'],
  ['KEYS', '*'],
  ['SCAN', '0'],
  ['RANDOMKEY'],
  ['DBSIZE'],
  ['MONITOR'],
  ['CLIENT', 'LIST'],
  ['CLIENT', 'KILL', 'TYPE', 'normal'],
  ['CONFIG', 'GET', 'requirepass'],
  ['CONFIG', 'SET', 'requirepass', 'another'],
  ['ACL', 'LIST'],
  ['ACL', 'SETUSER', 'worker', 'allkeys'],
  ['SCRIPT', 'FLUSH'],
  ['FUNCTION', 'LIST'],
  ['SAVE'],
  ['SHUTDOWN'],
  ['REPLICAOF', 'NO', 'ONE'],
  ['SORT', 'bull:paceline-step-tasks:wait', 'BY', 'nosort', 'GET', 'paceline:writable'],
  ['GET', 'a key of somebody else'],
  ['SET', 'bull:another-queue:id', '1'],
] as const;

const MAY: Readonly<Record<RedisRole, readonly (readonly string[])[]>> = {
  api: [
    ['HGETALL', 'paceline:control:a-run'],
    ['HSET', 'paceline:control:a-run', 'action', '1:pause'],
    ['XGROUP', 'CREATE', 'paceline:reports', 'a-group', '0', 'MKSTREAM'],
    ['XREADGROUP', 'GROUP', 'a-group', 'me', 'STREAMS', 'paceline:reports', '>'],
    ['PUBLISH', 'paceline:revoked-keys', 'x'],
    ['SET', 'paceline:writable', '1', 'PX', '1000000'],
    ['EVAL', "return redis.call('GET', KEYS[1])", '1', 'bull:paceline-placements:id'],
  ],
  ps: [
    ['HMGET', 'paceline:control:a-run', 'action'],
    ['XADD', 'paceline:reports', 'MAXLEN', '~', '50000', '*', 'report', '{}'],
    ['EVAL', "return redis.call('INCR', KEYS[1])", '1', 'bull:paceline-placements:id'],
  ],
  worker: [
    ['HMGET', 'paceline:control:a-run', 'action'],
    ['XADD', 'paceline:reports', 'MAXLEN', '~', '50000', '*', 'report', '{}'],
    ['EVAL', "return redis.call('INCR', KEYS[1])", '1', 'bull:paceline-step-tasks:id'],
  ],
};

const OF_THE_API = [
  ['HSET', 'paceline:control:a-run', 'action', '1:cancel'],
  ['DEL', 'paceline:control:a-run'],
  ['XRANGE', 'paceline:reports', '-', '+'],
  ['XREAD', 'STREAMS', 'paceline:reports', '0'],
  ['XGROUP', 'DESTROY', 'paceline:reports', 'a-group'],
  ['GET', 'paceline:writable'],
  ['PUBLISH', 'paceline:revoked-keys', 'x'],
  ['SUBSCRIBE', 'paceline:revoked-keys'],
];

const MAY_NOT: Readonly<Record<RedisRole, readonly (readonly string[])[]>> = {
  api: [['PUBLISH', 'another-channel', 'x']],
  ps: [...OF_THE_API, ['GET', 'bull:paceline-step-tasks:id']],
  worker: [
    ...OF_THE_API,
    ['GET', 'bull:paceline-placements:id'],
    ['EVAL', "return redis.call('GET', KEYS[1])", '1', 'bull:paceline-placements:id'],
    // A key that the script does not declare.
    ['EVAL', "return redis.call('GET', 'bull:paceline-placements:id')", '0'],
    ['EVAL', "return redis.call('FLUSHALL')", '0'],
  ],
};

describe.each(REDIS_ROLES)('the user %s', (role) => {
  it('can do what its process does', async () => {
    for (const words of MAY[role]) await expect(send(role, words), words.join(' ')).resolves.not.toThrow();
  });

  it('can do nothing else', async () => {
    for (const words of [...OF_THE_OPERATOR, ...MAY_NOT[role]])
      await expect(send(role, words), words.join(' ')).rejects.toThrow(/NOPERM|can't access|can't run this command|ACL failure/);
    expect(await clients.operator.hget('paceline:control:a-run', 'action')).toBe('1:pause');
  });

  it('has a password of its own', async () => {
    const others = [
      new URL(redis.url).password,
      ...REDIS_ROLES.filter((other) => other !== role).map((o) => new URL(redis.urlOf(o)).password),
    ];
    for (const password of others) await expect(send(role, ['AUTH', role, password])).rejects.toThrow('WRONGPASS');
  });
});

it('rules for a Redis that does not tell reading from writing name the same keys', () => {
  const before = redisUserLines('a-password', 6).join('\n');
  expect(before).not.toContain('%');
  expect(before).toContain('~paceline:control:*');
  expect(redisPassword('a-password', 'worker')).not.toBe(redisPassword('another', 'worker'));
});
