/** What `paceline up` decides before and after the stack starts: the port of the api, and the keys in its data folder. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { writeConfiguration } from '../configuration.js';
import type { Terminal } from '../terminal/terminal.js';
import { portFor } from './api-port.js';
import { inherited } from './local-stack.js';
import { ensureKey, keepAdminKey, readSecrets } from './stack-keys.js';
import { elsewhere, lockStack, runningStack } from './stack-lock.js';

const notes: string[] = [];
const terminal = { note: (text: string) => void notes.push(text) } as unknown as Terminal;
let server: Server;
let folder: string;
/** What the api answers for a key: none is known when it is not here. */
let answers: (authorization: string, operation: string) => object | undefined;
const portOf = (): number => (server.address() as AddressInfo).port;

/** An api that knows no key. */
beforeEach(async () => {
  notes.length = 0;
  folder = mkdtempSync(join(tmpdir(), 'paceline-up-'));
  answers = () => undefined;
  const unknown = { errors: [{ message: 'This API key is not known, or was revoked.', extensions: { code: 'UNAUTHENTICATED' } }] };
  server = createServer((request, response) => {
    let text = '';
    request.on('data', (part: Buffer) => (text += part.toString()));
    request.on('end', () => {
      const data = answers(request.headers.authorization!, (JSON.parse(text) as { operationName: string }).operationName);
      response.writeHead(data ? 200 : 401, { 'content-type': 'application/json' }).end(JSON.stringify(data ? { data } : unknown));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(async () => {
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true, force: true });
});

describe('a port that is taken', () => {
  const host = '127.0.0.1';

  it('is left for the next free one where nobody has asked for it, which is said', async () => {
    const port = portOf();
    const free = await portFor({ port, host }, true, terminal);
    expect(free).toBeGreaterThan(port);
    expect(notes).toEqual([`Port ${port} is taken by another program; the api takes ${free}.`]);
    expect(await portFor({ port: free, host }, true, terminal)).toBe(free);
  });

  it('is not what keeps an address of another machine from being listened on', async () => {
    for (const port of [0, 4100])
      await expect(portFor({ port, host: '192.0.2.1' }, true, terminal)).rejects.toMatchObject({ code: 'BAD_ADDRESS' });
  });

  it('is refused where it was asked for, with one that is free', async () => {
    const port = portOf();
    const hint = expect.stringMatching(/paceline up --port \d+ \(it is free; 0 takes any free one\)/u);
    await expect(portFor({ port, host }, false, terminal)).rejects.toMatchObject({ code: 'PORT_TAKEN', hint });
    expect([await portFor({ port: 0, host }, false, terminal), notes]).toEqual([0, []]);
  });
});

it('a data folder in which a stack of another host runs is named with that host, and left alone', () => {
  const file = join(folder, 'up.pid.json');
  writeFileSync(file, JSON.stringify({ pid: process.pid, ticks: '1', host: 'node-7', place: 'its boot', machine: 'its own' }));
  const hint = expect.stringContaining(`or remove ${file}`);
  expect(() => lockStack(folder)).toThrow(
    expect.objectContaining({ code: 'ALREADY_RUNNING', message: expect.stringContaining('node-7'), hint }),
  );
  expect(elsewhere(runningStack(folder)!)).toBe('node-7');
});

it('every process of the stack hears where checkpoints lie, with the credentials of a bucket; those of a temporary stack do not', () => {
  vi.stubEnv('PACELINE_CHECKPOINT_STORE', 's3://bucket/prefix');
  vi.stubEnv('AWS_REGION', 'eu-1');
  vi.stubEnv('PACELINE_DATA_STORE', '');
  const given = { PACELINE_CHECKPOINT_STORE: 's3://bucket/prefix', AWS_REGION: 'eu-1' };
  expect(inherited({ temporary: false })).toMatchObject(given);
  for (const name of Object.keys(given)) expect(inherited({ temporary: true })).not.toHaveProperty(name);
  vi.unstubAllEnvs();
});

describe("the administrator's key of a data folder", () => {
  it('is replaced by the one that the api has made, and nothing else of the secrets changes', () => {
    const { tokenSecret, bootstrapKey } = readSecrets(folder);
    keepAdminKey({ madeAdminKey: undefined }, folder, terminal);
    expect([readSecrets(folder).bootstrapKey, notes]).toEqual([bootstrapKey, []]);
    keepAdminKey({ madeAdminKey: 'pcl_made' }, folder, terminal);
    const file = join(folder, 'secrets.json');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ tokenSecret, bootstrapKey: 'pcl_made' });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(notes).toEqual([`The administrator key in ${file} was revoked and no other was left; it is replaced.`]);
  });

  it('makes a key for the command line, which keeps the one of another api, to which nothing is sent', async () => {
    const env = { PACELINE_HOME: folder };
    const url = `http://127.0.0.1:${portOf()}`;
    writeConfiguration({ url: 'https://company.example', apiKey: 'theirs' }, env);
    const { bootstrapKey } = readSecrets(folder);
    const known: string[] = [bootstrapKey, 'made'];
    const seen: string[] = [];
    answers = (authorization, operation) => {
      const key = authorization.replace('Bearer ', '');
      seen.push(`${operation} ${key}`);
      if (!known.includes(key)) return undefined;
      if (operation === 'viewer') return { viewer: { team: { id: 't' } } };
      return { createApiKey: { __typename: 'CreateApiKeySuccess', apiKey: { id: 'k' }, secret: 'made' } };
    };
    expect(await ensureKey(url, folder, env, terminal)).toBe('made');
    expect(seen).toEqual([`viewer ${bootstrapKey}`, `createApiKey ${bootstrapKey}`]);
    const file = join(folder, 'config', 'config.json');
    const [spoke, again] = [
      `Commands spoke to https://company.example and speak to ${url} now.`,
      'PACELINE_URL=https://company.example speaks to it again.',
    ];
    expect(notes).toEqual([`${spoke} Its key is kept in ${file}: ${again}`]);
    const kept = { url, apiKey: 'made', otherKeys: { 'https://company.example': 'theirs' } };
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(kept);
    expect(await ensureKey(url, folder, env, terminal), 'the next start').toBe('made');
    writeConfiguration({ url: 'http://127.0.0.1:1', apiKey: 'made', formerUrl: url }, env);
    expect(await ensureKey(url, folder, env, terminal), 'the stack had another port').toBe('made');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(kept);
    writeFileSync(file, JSON.stringify({ url: 'https://company.example' }), { mode: 0o600 });
    notes.length = 0;
    await ensureKey(url, folder, env, terminal);
    expect(notes, 'no key of it was there').toEqual([`${spoke} ${again}`]);
  });

  it('that was revoked while another one is left is named, with where the other one belongs', async () => {
    const env = { PACELINE_HOME: folder };
    const hint = expect.stringContaining(`Write the administrator's key into ${join(folder, 'secrets.json')} as bootstrapKey`);
    await expect(ensureKey(`http://127.0.0.1:${portOf()}`, folder, env, terminal)).rejects.toMatchObject({
      code: 'ADMIN_KEY_REVOKED',
      hint,
    });
  });
});
