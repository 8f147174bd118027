import disk, { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync, mkdirSync, readdirSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PacelineApiError } from '@paceline/client';
import { EXIT, UserError } from '@paceline/runtime';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createContext } from './command.js';
import { configurationFile, readConfiguration, writeConfiguration } from './configuration.js';
import { reportFailure } from './failure.js';
import { capturedStream } from './terminal/captured.fixture.js';
import { createTerminal } from './terminal/terminal.js';

let temp: string;
let env: NodeJS.ProcessEnv;
beforeEach(() => {
  temp = mkdtempSync(join(tmpdir(), 'paceline-config-'));
  env = { PACELINE_HOME: temp };
});
afterEach(() => rmSync(temp, { recursive: true, force: true }));
const warnings: string[] = [];
const read = (more: NodeJS.ProcessEnv = {}) => {
  warnings.length = 0;
  return readConfiguration({ ...env, ...more }, (text) => warnings.push(text));
};

describe('the configuration file', () => {
  it('is private whatever the umask, and replaced in one step', () => {
    const umask = process.umask(0);
    try {
      writeConfiguration({ url: 'http://a:1', apiKey: 'key' }, env);
      writeConfiguration({ url: 'http://b:1', apiKey: 'key2' }, env);
    } finally {
      process.umask(umask);
    }
    expect(statSync(configurationFile(env)).mode & 0o777).toBe(0o600);
    expect(statSync(join(temp, 'config')).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(temp, 'config'))).toEqual(['config.json']);
    expect(read()).toMatchObject({ url: 'http://b:1', apiKey: 'key2', urlFrom: 'file', keyFrom: 'file' });
    expect(warnings).toEqual([]);
  });

  it('gives way to the environment; without both there is a default address and no key', () => {
    expect(read()).toMatchObject({ url: 'http://127.0.0.1:4100', apiKey: undefined, urlFrom: 'default', keyFrom: 'nowhere' });
    writeConfiguration({ url: 'http://a:1', apiKey: 'key' }, env);
    expect(read({ PACELINE_API_KEY: 'other' })).toMatchObject({ url: 'http://a:1', apiKey: 'other', keyFrom: 'PACELINE_API_KEY' });
    writeFileSync(configurationFile(env), 'broken', { mode: 0o644 });
    const both = { url: 'http://c:1', apiKey: 'other', keyFrom: 'PACELINE_API_KEY' };
    expect(read({ PACELINE_URL: 'http://c:1', PACELINE_API_KEY: 'other' }), 'the file is not opened').toMatchObject(both);
    expect(warnings).toEqual([]);
  });

  it('gives a key to no address but its own, and keeps those of all', () => {
    writeConfiguration({ url: 'https://company.example', apiKey: 'theirs' }, env);
    const stranger = { apiKey: undefined, keyFrom: 'nowhere', keyIsFor: 'https://company.example' };
    expect(read({ PACELINE_URL: 'http://127.0.0.1:4100' })).toMatchObject(stranger);
    expect(() =>
      createContext(createTerminal({ json: false, debug: false }, {}), { ...env, PACELINE_URL: 'http://b:1' }).connect(),
    ).toThrow(expect.objectContaining({ code: 'NO_KEY', message: expect.stringContaining('is for https://company.example') as string }));
    writeConfiguration({ url: 'http://127.0.0.1:4100', apiKey: 'mine' }, env);
    expect(read()).toMatchObject({ url: 'http://127.0.0.1:4100', apiKey: 'mine' });
    expect(read({ PACELINE_URL: 'http://localhost:4100/' })).toMatchObject({ apiKey: 'mine', keyFrom: 'file' });
    expect(read({ PACELINE_URL: 'https://company.example/' })).toMatchObject({ apiKey: 'theirs', keyFrom: 'file', keyIsFor: undefined });
    writeConfiguration({ url: 'http://127.0.0.1:4200', apiKey: 'mine', formerUrl: 'http://127.0.0.1:4100' }, env);
    expect(read({ PACELINE_URL: 'http://127.0.0.1:4100' }).apiKey, 'the stack is elsewhere now').toBeUndefined();
    expect(read({ PACELINE_URL: 'https://company.example' }).apiKey).toBe('theirs');
  });

  it('that others can read and nobody can change is used, with a warning', () => {
    writeConfiguration({ url: 'http://a:1', apiKey: 'key' }, env);
    chmodSync(configurationFile(env), 0o644);
    const refused = vi.spyOn(disk, 'chmodSync').mockImplementation(() => {
      throw Object.assign(new Error('EROFS'), { code: 'EROFS' });
    });
    syncBuiltinESMExports();
    expect(read().apiKey).toBe('key');
    refused.mockRestore();
    syncBuiltinESMExports();
    expect(warnings).toEqual([expect.stringContaining('cannot be changed to 600: its disk can only be read. If others use')]);
  });

  it('that others can read is repaired, with a warning', () => {
    writeConfiguration({ url: 'http://a:1', apiKey: 'key' }, env);
    chmodSync(configurationFile(env), 0o644);
    expect(read().apiKey).toBe('key');
    expect(warnings).toEqual([expect.stringContaining('could be read by others (mode 644)')]);
    expect(statSync(configurationFile(env)).mode & 0o777).toBe(0o600);
  });

  it.each(['{', '[]', '{"url": 5}', '{"apikey": "typo"}', '{"otherKeys": {"http://a": 5}}', 'x'.repeat(70_000)])(
    'that cannot be used is named: %.20s',
    (text) => {
      mkdirSync(join(temp, 'config'));
      writeFileSync(configurationFile(env), text, { mode: 0o600 });
      expect(() => read()).toThrow(
        expect.objectContaining({ code: 'CONFIG_UNREADABLE', exit: 'configuration', message: expect.stringContaining('config.json') }),
      );
    },
  );
});

describe('failures', () => {
  const report = (error: unknown, { json = false, debug = false } = {}): { code: number; out: string; err: string } => {
    const [stdout, stderr] = [capturedStream(), capturedStream()];
    const code = reportFailure(error, createTerminal({ json, debug }, {}, stdout, stderr));
    return { code, out: stdout.text, err: stderr.text };
  };

  it('of people show what to do and no stack', () => {
    const { code, out, err } = report(new UserError('PORT_TAKEN', 'Port 1 is taken.', { hint: 'Choose another.', exit: 'configuration' }));
    expect([code, out, err]).toEqual([EXIT.configuration, '', 'error Port 1 is taken. [PORT_TAKEN]\nChoose another.\n']);
  });

  it('of the api have an exit code by their kind, and their texts are cleaned', () => {
    expect(report(new PacelineApiError('UNREACHABLE', 'x')).code).toBe(EXIT.unavailable);
    expect(report(new PacelineApiError('UNAUTHENTICATED', 'x', { httpStatus: 401 })).code).toBe(EXIT.keyRefused);
    expect(report(new PacelineApiError('NOT_FOUND', 'x')).code).toBe(EXIT.notFound);
    expect(report(new PacelineApiError('TOO_LARGE', 'x', { httpStatus: 413 })).code).toBe(EXIT.badSpec);
    expect(report(new PacelineApiError('SOMETHING_NEW', 'x', { httpStatus: 503 })).code).toBe(EXIT.unavailable);
    const { code, err } = report(
      new PacelineApiError('INVALID_INPUT', 'bad\u001b[2J', { issues: [{ path: 'seed', message: '\u001b]0;t\u0007no' }] }),
    );
    expect([code, err]).toEqual([EXIT.badSpec, 'error bad [INVALID_INPUT]\n  seed: no\n']);
  });

  it('are one JSON document with --json', () => {
    const { out, err } = report(new PacelineApiError('INVALID_INPUT', 'bad', { issues: [{ path: 'seed', message: 'no' }] }), {
      json: true,
    });
    expect(JSON.parse(out)).toEqual({ error: { code: 'INVALID_INPUT', message: 'bad', issues: [{ path: 'seed', message: 'no' }] } });
    expect(err).toBe('');
  });

  it('of a disk name the file and what is wrong with it', () => {
    let fault: unknown;
    try {
      writeFileSync(temp, 'a file in place of a folder');
    } catch (error) {
      fault = error;
    }
    const { code, err } = report(fault);
    expect([code, err.split('\n')[0]]).toEqual([EXIT.usage, `error ${temp} cannot be used: it is a folder (EISDIR). [FILE_UNUSABLE]`]);
  });

  it('of Paceline itself say so, with the stack only when asked for', () => {
    const fault = new TypeError('x is undefined');
    expect(report(fault)).toMatchObject({ code: EXIT.internal, err: expect.not.stringContaining('    at ') });
    expect(report(fault, { debug: true }).err).toContain('TypeError: x is undefined\n    at ');
  });
});
