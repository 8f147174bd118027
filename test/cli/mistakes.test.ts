/** What people get wrong: an exit code, one clear message, never a stack. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { EXIT, findFreePort } from '@paceline/runtime';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NO_DRIVER, swiftShaderEnvironment } from '../web/swiftshader.js';
import { createHome, type Home } from './command-line.js';

let home: Home;
let server: Server;
let url: string;

beforeAll(async () => {
  home = createHome();
  // Something that is not the api.
  server = createServer((_request, response) => response.writeHead(404, { 'content-type': 'text/html' }).end('<h1>nginx</h1>'));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
});
afterAll(async () => {
  server.close();
  await home.dispose();
});

const KEY = { PACELINE_API_KEY: 'pcl_0123456789ab_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' };
/** Nobody listens there. */
/** Below those that a system gives to who asks for any: no process of another test comes to listen there. */
async function portOfNobody(): Promise<number> {
  const port = 20_000 + Math.floor(Math.random() * 12_000);
  const probe = createServer();
  const isFree = await new Promise<boolean>((resolve) => {
    probe.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
  });
  if (!isFree) return portOfNobody();
  await new Promise((resolve) => void probe.close(resolve));
  return port;
}
const NOBODY = { ...KEY, PACELINE_URL: `http://127.0.0.1:${await portOfNobody()}`, PACELINE_RETRY_SECONDS: '0' };

const driver = swiftShaderEnvironment();

describe('mistakes', () => {
  it.each<[string, string[], NodeJS.ProcessEnv, number, RegExp]>([
    ['no command', [], {}, EXIT.usage, /Usage: paceline/],
    ['an unknown command', ['trian'], {}, EXIT.usage, /unknown command 'trian' – did you mean train\?/],
    ['an unknown flag', ['train', '--replica', '3'], {}, EXIT.usage, /unknown option '--replica' – did you mean --replicas\?/],
    ['a missing argument', ['run'], {}, EXIT.usage, /missing required argument 'run'/],
    ['a flag that is no number', ['train', '--seed', 'abc'], {}, EXIT.usage, /--seed "abc" is not a whole number/],
    ['an unknown model', ['train', '--model', 'mpl'], {}, EXIT.usage, /--model "mpl" is not one of mlp.* – did you mean mlp\?/],
    [
      'an unknown status',
      ['runs', '--status', 'runing'],
      KEY,
      EXIT.usage,
      /"runing" is no status – did you mean RUNNING\?[^]*A run is PENDING, .*CANCELLED/,
    ],
    ['an engine that is none', ['train', '--engine', 'metal'], {}, EXIT.usage, /--engine "metal" is not one of wasm.*webgpu/],
    [
      'an engine that npm installs',
      ['engine', 'install', 'webgpu'],
      {},
      EXIT.usage,
      /comes with the npm package webgpu[^]*Run npm install webgpu/,
    ],
    ['a huge number', ['train', '--replicas', '1e99'], {}, EXIT.usage, /--replicas/],
    ['too many replicas', ['train', '--replicas', '99999999999'], {}, EXIT.badSpec, /--replicas {2}replicas: /],
    ['an impossible batch', ['train', '--global-batch', '3', '--replicas', '4'], {}, EXIT.badSpec, /must be at least replicas \(4\)/],
    ['a spec file that is not there', ['train', 'nowhere.yaml'], {}, EXIT.notFound, /There is no file nowhere\.yaml/],
    ['no key', ['runs'], {}, EXIT.keyRefused, /There is no api key/],
    ['nobody at the address', ['runs'], NOBODY, EXIT.unavailable, /cannot be reached \(ECONNREFUSED\)[^]*paceline up/],
    ['an address that is none', ['runs'], { ...KEY, PACELINE_URL: 'localhost' }, EXIT.configuration, /"localhost" is no address/],
    ['a bad number of workers', ['up', '--workers', '9999'], {}, EXIT.usage, /--workers "9999" is not a whole number from 0 to 64/],
    [
      'a DATABASE_URL that is none',
      ['up'],
      { DATABASE_URL: 'mysql://u:hunter2@h/d' },
      EXIT.configuration,
      /DATABASE_URL: must be an address like postgresql/,
    ],
    ['an unknown source of Redis', ['doctor'], { PACELINE_REDIS_SOURCE: 'x' }, EXIT.unsuccessful, /PACELINE_REDIS_SOURCE/],
  ])('%s', async (_name, args, env, exit, message) => {
    const result = await home.run(args, env);
    const text = result.stdout + result.stderr;
    expect(text).toMatch(message);
    expect(result.exit, text).toBe(exit);
    expect(text).not.toMatch(/^\s+at .*:\d+:\d+\)?$/m);
    expect(text).not.toContain('hunter2');
  });

  it.skipIf(!driver)('webgpu is listed with why it is not available and what to do', async () => {
    const noDriver = { VK_ICD_FILENAMES: '/nowhere.json', VK_DRIVER_FILES: '/nowhere.json' };
    const text = await home.run(['engine', 'list'], noDriver);
    expect(text).toMatchObject({ exit: EXIT.ok });
    expect(text.stdout).toMatch(/^webgpu +is not available: .*no GPU adapter: it needs a driver for Vulkan.*Take `engine: wasm`\.$/m);
    const { engines, unavailable } = JSON.parse((await home.run(['engine', 'list', '--json'], noDriver)).stdout) as Record<
      string,
      { name: string }[]
    >;
    expect(engines!.map(({ name }) => name)).not.toContain('webgpu');
    expect(unavailable).toEqual([{ name: 'webgpu', why: expect.stringContaining('no GPU adapter') as string }]);
    const tried = await home.run(['engine', 'test', 'webgpu'], noDriver);
    expect(tried).toMatchObject({ exit: EXIT.unsuccessful });
    expect(tried.stderr).toMatch(/The webgpu engine does not work here: .*no GPU adapter/);
  });

  it.skipIf(!driver)(`on a software driver webgpu is listed with it (${NO_DRIVER})`, async () => {
    const { stdout } = await home.run(['engine', 'list'], driver);
    expect(stdout).toMatch(/^webgpu +on .*SwiftShader.*computes on the processor.*\(.*webgpu\)$/m);
  });

  it('an address where something else answers', async () => {
    const result = await home.run(['runs'], { ...KEY, PACELINE_URL: url });
    expect(result).toMatchObject({ exit: EXIT.unavailable, stdout: '' });
    expect(result.stderr).toContain('is that address the Paceline api?');
  });

  it('are JSON with --json, wherever it stands', async () => {
    for (const args of [
      ['--json', 'runs'],
      ['runs', '--json'],
    ]) {
      const { exit, stdout, stderr } = await home.run(args, NOBODY);
      expect(exit).toBe(EXIT.unavailable);
      expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'UNREACHABLE', hint: expect.any(String) } });
      expect(stderr).toBe('');
    }
    expect(JSON.parse((await home.run(['nope', '--json'])).stdout)).toMatchObject({ error: { code: 'USAGE' } });
  });

  it('show their stack only with --debug', async () => {
    expect((await home.run(['runs', '--debug'], NOBODY)).stderr).toMatch(/^\s+at .*:\d+:\d+\)?$/m);
    expect((await home.run(['runs'], { ...NOBODY, PACELINE_DEBUG: '1' })).stderr).toMatch(/caused by/);
  });

  it('in a spec file are told with line and column', async () => {
    writeFileSync(join(home.folder, 'spec.yaml'), 'model: mlp\noptimizer:\n  name: adam\n  momentum: 0.9\n');
    const { exit, stderr } = await home.run(['train', 'spec.yaml']);
    expect(exit).toBe(EXIT.badSpec);
    expect(stderr).toContain('spec.yaml:4:3  optimizer.momentum: unknown field');
  });

  it('in the form of a spec file are told in sentences', async () => {
    writeFileSync(join(home.folder, 'form.yaml'), 'length: {\nepochs: 2 }\n');
    const { exit, stderr } = await home.run(['train', 'form.yaml']);
    expect(exit).toBe(EXIT.badSpec);
    expect(stderr).toMatch(/form\.yaml:2:1 {2}\(file\): this line is not indented as far as it must be/);
  });

  it('that only GraphQL understands are told as what they mean', async () => {
    const other = createServer((_request, response) =>
      response.setHeader('content-type', 'application/json').end(
        JSON.stringify({
          errors: [{ message: 'Cannot query field "runsMeant" on type "Query".', extensions: { code: 'GRAPHQL_VALIDATION_FAILED' } }],
        }),
      ),
    );
    await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
    const there = { ...KEY, PACELINE_URL: `http://127.0.0.1:${(other.address() as { port: number }).port}` };
    const { exit, stderr } = await home.run(['run', 'first-try'], there);
    other.close();
    expect([exit, stderr]).toEqual([
      EXIT.unavailable,
      expect.stringMatching(/^error The api does not understand[^]*of different releases/),
    ]);
    expect(stderr).not.toContain('runsMeant');
  });

  it('of an api that is away are none when it is back soon', async () => {
    const port = await findFreePort();
    const running = home.start(['runs', '--json'], { ...KEY, PACELINE_URL: `http://127.0.0.1:${port}` });
    const back = createServer((_request, response) => {
      const runs = { totalCount: 0, edges: [], pageInfo: { hasNextPage: false, endCursor: null } };
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ data: { runs } }));
    });
    await new Promise((resolve) => setTimeout(resolve, 1500)); // nobody listens meanwhile
    expect(running.child.exitCode).toBe(null);
    await new Promise<void>((done) => back.listen(port, '127.0.0.1', done));
    expect(await running.finished).toMatchObject({ exit: 0, stderr: '' });
    back.close();
  });

  it('a key file that others can read is repaired', async () => {
    mkdirSync(join(home.folder, 'config'), { recursive: true });
    writeFileSync(join(home.folder, 'config/config.json'), JSON.stringify({ url: NOBODY.PACELINE_URL, apiKey: 'k' }), { mode: 0o666 });
    const { exit, stderr } = await home.run(['runs']);
    expect(stderr).toContain('it is 600 now');
    expect(exit).toBe(EXIT.unavailable);
  });

  it('a local stack that does not run is said to be away', async () => {
    mkdirSync(join(home.folder, 'config'), { recursive: true });
    const { PACELINE_URL: address } = NOBODY;
    writeFileSync(join(home.folder, 'config/config.json'), JSON.stringify({ url: address, apiKey: 'k' }), { mode: 0o600 });
    expect(await home.run(['runs'])).toMatchObject({ exit: EXIT.unavailable });
  });

  it('a reader that goes away is no fault', async () => {
    const running = home.start(['train', '--help']);
    running.child.stdout!.destroy();
    expect(await running.finished).toMatchObject({ exit: 0, stderr: '' });
  });
});
