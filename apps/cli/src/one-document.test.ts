/** With --json a command prints one line on stdout, whatever happens. */
import { createServer, type Server } from 'node:http';
import { MODEL_ZOO } from '@paceline/spec';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expiry } from './commands/team.js';
import { runProgram } from './program.js';
import { capturedStream } from './terminal/captured.fixture.js';
import { createTerminal } from './terminal/terminal.js';

const RUN = '0190a4de-0000-7000-8000-000000000000';
let server: Server;
let url: string;
/** Data by operation; what is not here is a fault of the api. */
let answers: Readonly<Record<string, object>> = {};

beforeAll(async () => {
  server = createServer((request, response) => {
    let text = '';
    request.on('data', (part: Buffer) => (text += part.toString()));
    request.on('end', () => {
      // The request for a WebSocket, which has no text.
      if (text === '') return void response.writeHead(400).end();
      const data = answers[(JSON.parse(text) as { operationName: string }).operationName];
      const fault = { errors: [{ message: 'A fault', extensions: { code: 'INTERNAL_SERVER_ERROR' } }] };
      response.writeHead(data ? 200 : 500, { 'content-type': 'application/json' }).end(JSON.stringify(data ? { data } : fault));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

async function run(...argv: string[]): Promise<{ readonly exit: number; readonly out: string; readonly err: string }> {
  const [stdout, stderr] = [capturedStream(), capturedStream()];
  const env = { PACELINE_URL: url, PACELINE_API_KEY: 'k', PACELINE_RETRY_SECONDS: '0' };
  const exit = await runProgram(argv, env, undefined, (options) => createTerminal(options, env, stdout, stderr));
  return { exit, out: stdout.text, err: stderr.text };
}

/** What a line of JSON says; a failure when there are more, or none. */
async function documentOf(...argv: string[]): Promise<unknown> {
  const { out, err } = await run('--json', ...argv);
  expect(out, err).toMatch(/^[^\n]+\n$/);
  return JSON.parse(out);
}

describe('with --json', () => {
  it.each(['', 'data', 'team', 'key', 'alias', 'model', 'engine'])('a group of commands says what is missing: %s', async (group) => {
    const named = group === '' ? [] : [group];
    const message = expect.stringMatching(group === '' ? /^a command is missing: train, / : new RegExp(`after ${group} is missing: \\w+`));
    expect(await documentOf(...named)).toEqual({ error: { code: 'USAGE', message } });
    expect(await documentOf(...named, 'help', 'nope')).toEqual({ error: { code: 'USAGE', message: "unknown command 'nope'" } });
  });

  it('a team whose key fails is named', async () => {
    answers = { createTeam: { createTeam: { __typename: 'CreateTeamSuccess', team: { id: 'TEAM-ID', name: 't' } } } };
    const error = {
      code: 'TEAM_WITHOUT_KEY',
      message: expect.stringContaining('TEAM-ID'),
      hint: expect.stringContaining('--team TEAM-ID'),
    };
    expect(await documentOf('team', 'create', 't')).toMatchObject({ error });
  });

  it('a cancelled run is told once, and a run that cannot be watched is named', async () => {
    answers = { cancelRun: { cancelRun: { __typename: 'CancelRunSuccess', run: { id: RUN, name: 'x', status: 'CANCELLED' } } } };
    expect(await documentOf('cancel', RUN)).toMatchObject({ id: RUN, status: 'CANCELLED' });
    expect(await run('cancel', RUN)).toMatchObject({ exit: 0, err: '' });
    answers = { createRun: { createRun: { __typename: 'CreateRunSuccess', run: { id: RUN, name: 'x', status: 'QUEUED' } } } };
    expect(await documentOf('train')).toMatchObject({ runId: RUN, error: { code: 'INTERNAL_SERVER_ERROR' } });
  });

  it.each(MODEL_ZOO)('%s of the zoo is shown, or refused with what it needs', async (model) => {
    const shown = await documentOf('model', 'show', model);
    const needs = { code: 'INVALID_MODEL', message: expect.stringContaining(`${model} needs`), hint: expect.stringContaining('--dataset') };
    if (/^(lstm|gru|transformer)$/.test(model)) expect(shown).toMatchObject({ error: needs });
    else expect(shown).toMatchObject({ summary: { parameters: expect.any(Number) as number } });
  });
});

it('a group of commands without one of them shows its own help', async () => {
  const { exit, out, err } = await run('data');
  expect([exit, out, err]).toEqual([64, '', expect.stringMatching(/^Usage: (npx )?paceline data [^]* verify /)]);
  expect((await run('help', 'nope')).err).toContain("unknown command 'nope'");
});

it('predictions in a form that is none are refused before anything is computed', async () => {
  expect(await documentOf('predict', 'nowhere', '--input', 'none.csv', '--out', 'x.jsonl')).toMatchObject({
    error: { code: 'OUTPUT_UNUSABLE', message: expect.stringContaining('.csv nor in .json') },
  });
});

describe('keys', () => {
  it('are listed with what they still are', async () => {
    const key = (name: string, more: object) =>
      Object.assign({ id: name, name, prefix: name, createdAt: '2026-01-01T00:00:00Z', lastUsedAt: null, revokedAt: null }, more);
    const apiKeys = [
      key('ended', { expiresAt: '2026-02-01T00:00:00Z', isReadOnly: false }),
      key('looks', { expiresAt: null, isReadOnly: true }),
      key('works', { expiresAt: '2999-02-01T12:30:00Z', isReadOnly: false }),
    ];
    answers = { viewer: { viewer: { team: { id: 't', apiKeys } } } };
    const lines = (await run('key', 'list')).out.split('\n');
    expect(lines[0]).toMatch(/STATE +UNTIL \(UTC\)/);
    expect(lines.slice(1, 4)).toEqual([
      expect.stringMatching(/ended +expired +2026-02-01 00:00 /),
      expect.stringMatching(/looks +read-only +– /),
      expect.stringMatching(/works +in use +2999-02-01 12:30 /),
    ]);
  });

  it('end after days, or with a date', () => {
    const nowMs = Date.UTC(2026, 0, 1);
    expect(expiry('30d', nowMs)).toEqual(new Date('2026-01-31T00:00:00Z'));
    expect(expiry('2026-02-01', nowMs)).toEqual(new Date('2026-02-01T00:00:00Z'));
    expect(expiry('2026-02-01T06:00:00+02:00', nowMs)).toEqual(new Date('2026-02-01T04:00:00Z'));
    for (const text of ['0d', 'soon', '2025-12-31', '2026-13-01', '2026-02-31', '2026-02-30T06:00:00Z', '1'])
      expect(() => expiry(text, nowMs)).toThrow(expect.objectContaining({ code: 'FLAG_INVALID' }));
  });
});
