/** Addresses that must not be reached, and servers that lie. Local servers stand for public ones: the rules say which of their addresses may be reached. */
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { refusal } from '../import.fixture.js';
import { checkOptions, type ImportOptions } from '../options.js';
import { httpFile, isAllowedHost, isPublicAddress, reachOf, type Reach } from './http.js';
import type { SourceContext } from './source-file.js';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

async function serve(answer: RequestListener): Promise<number> {
  const server = createServer(answer);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  return (server.address() as AddressInfo).port;
}

const context = (more: Partial<ImportOptions> = {}): SourceContext => ({
  options: checkOptions(Object.assign({ sources: ['x'] }, more)),
  signal: undefined,
  workFolder: '/nowhere',
  traffic: { bytesRead: 0, bytesTotal: undefined },
  atClose: () => undefined,
});

/** 127.0.0.1 stands for the public internet, everything else is private. */
const reach = (addresses: Record<string, string> = {}): Reach => ({
  protocols: ['http:'],
  mayConnect: (address) => address === '127.0.0.1',
  mayAsk: (host) => host !== 'forbidden.test',
  resolve: (host, done) => done(null, [{ address: addresses[host] ?? '127.0.0.2', family: 4 }]),
});

async function read(url: string, rules: Reach, within = context()): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of httpFile(url, undefined, within, rules).open()) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

test.each([
  ...['127.0.0.1', '127.8.8.8', '10.0.0.1', '172.16.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0', '255.255.255.255'],
  ...['224.0.0.1', '198.18.0.1', '240.0.0.1', '::', '::1', 'fe80::1', 'fe80::1%eth0', 'fc00::1', 'fd00:ec2::254', 'ff02::1'],
  ...['::ffff:127.0.0.1', '::ffff:8.8.8.8', '64:ff9b::7f00:1', '2002:7f00:1::', '2001::1', 'localhost', '', '127.1'],
])('%s is no public address', (address) => {
  expect(isPublicAddress(address)).toBe(false);
});

test.each(['8.8.8.8', '93.184.216.34', '2606:2800:220:1:248:1893:25c8:1946'])('%s is a public address', (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

describe('with policy server', () => {
  const server = context({ policy: 'server' });
  test.each([
    ...[
      'https://127.0.0.1/x.csv',
      'https://0x7f000001/x.csv',
      'https://2130706433/x.csv',
      'https://0177.0.0.1/x.csv',
      'https://127.1/x.csv',
    ],
    ...['https://[::1]/x.csv', 'https://[::ffff:127.0.0.1]/x.csv', 'https://169.254.169.254/latest/meta-data', 'https://[fd00:ec2::254]/'],
    ...['http://example.org/x.csv', 'https://user:secret@example.org/x.csv'],
  ])('%s is refused before anything is asked', async (url) => {
    const error = await refusal(Promise.resolve().then(() => httpFile(url, undefined, server, reachOf(server.options))));
    expect(error.code).toBe('SOURCE_FORBIDDEN');
    expect(error.message).not.toContain('secret');
  });

  test('localhost is refused when its address is known', async () => {
    expect(await refusal(read('https://localhost:1/x.csv', reachOf(server.options), server))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
  });
});

test('hosts are allowed by name, and below a name', () => {
  const allowed = ['data.example.org', '*.example.com'];
  expect(['data.example.org', 'DATA.example.org.', 'a.example.com', 'a.b.example.com'].map((host) => isAllowedHost(host, allowed))).toEqual(
    Array(4).fill(true),
  );
  expect(
    ['example.com', 'evilexample.com', 'x.data.example.org', 'a.example.com.evil.net'].some((host) => isAllowedHost(host, allowed)),
  ).toBe(false);
});

test('a file is read through a redirect', async () => {
  const port = await serve((request, response) => {
    if (request.url === '/from') response.writeHead(302, { location: '/to.csv' }).end();
    else response.end('a,b\n1,2\n');
  });
  expect(await read(`http://127.0.0.1:${port}/from`, reach())).toBe('a,b\n1,2\n');
});

test('a name whose address changes to a private one is refused when the socket is connected', async () => {
  let asked = 0;
  const port = await serve((_, response) => {
    asked++;
    response.end('secret');
  });
  const rules = reach();
  const answers = ['127.0.0.1', '127.0.0.2'];
  const rebinding: Reach = Object.assign({}, rules, {
    resolve: ((_, done) => done(null, [{ address: answers.shift()!, family: 4 }])) satisfies Reach['resolve'],
  });
  expect(await read(`http://rebind.test:${port}/`, rebinding)).toBe('secret');
  expect(await refusal(read(`http://rebind.test:${port}/`, rebinding))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
  expect(asked).toBe(1);
});

test('redirects to a private address, a forbidden host, another protocol and without end are refused', async () => {
  let asked = 0;
  const port = await serve((request: IncomingMessage, response) => {
    asked++;
    const to: Record<string, string> = {
      '/address': `http://127.0.0.2:${port}/secret`,
      '/name': `http://private.test:${port}/secret`,
      '/host': `http://forbidden.test:${port}/secret`,
      '/file': 'file:///etc/passwd',
      '/loop': '/loop',
    };
    response.writeHead(302, { location: to[request.url!] }).end();
  });
  for (const from of ['address', 'name', 'host', 'file']) {
    asked = 0;
    expect(await refusal(read(`http://127.0.0.1:${port}/${from}`, reach()))).toMatchObject({ code: 'SOURCE_FORBIDDEN' });
    expect(asked).toBe(1);
  }
  expect((await refusal(read(`http://127.0.0.1:${port}/loop`, reach()))).message).toMatch(/More than 5 redirects/);
});

test('bodies that are too long, say so or not, break off, or never come', async () => {
  const port = await serve((request, response) => {
    if (request.url === '/claims') response.writeHead(200, { 'content-length': 2 ** 40 }).flushHeaders();
    else if (request.url === '/cut') {
      response.writeHead(200, { 'content-length': 100 });
      response.write('abc', () => response.destroy());
    } else if (request.url === '/endless') {
      const piece = Buffer.alloc(64 << 10);
      const more = (): void => {
        while (!response.destroyed && response.write(piece));
        response.once('drain', more);
      };
      more();
    } else if (request.url === '/gone') response.writeHead(404).end();
    // Anything else is never answered.
  });
  const at = (path: string, limits: ImportOptions['limits'] = {}) =>
    refusal(read(`http://127.0.0.1:${port}/${path}`, reach(), context({ limits: limits! })));
  expect(await at('claims', { sourceBytes: 1 << 20 })).toMatchObject({ code: 'SOURCE_TOO_LARGE' });
  expect(await at('endless', { sourceBytes: 1 << 20 })).toMatchObject({ code: 'SOURCE_TOO_LARGE' });
  expect(await at('cut')).toMatchObject({ code: 'SOURCE_UNREADABLE' });
  expect(await at('gone')).toMatchObject({ code: 'SOURCE_NOT_FOUND' });
  expect((await at('silent', { requestDeadlineMs: 100 })).message).toMatch(/longer than the deadline/);
});

test('silence counts while a piece is waited for, and not while the reader is busy', async () => {
  const port = await serve((request, response) => {
    if (request.url === '/ends') return void response.writeHead(200).write('a,b\n');
    const piece = Buffer.alloc(64 << 10);
    const more = (left: number): void => {
      if (left === 0) return void response.end();
      if (response.write(piece)) more(left - 1);
      else response.once('drain', () => more(left - 1));
    };
    more(100);
  });
  const within = context({ limits: { idleMs: 600 } });
  let bytes = 0;
  for await (const piece of httpFile(`http://127.0.0.1:${port}/long`, undefined, within, reach()).open()) {
    if (bytes === 0) await new Promise((resolve) => setTimeout(resolve, 1500));
    bytes += piece.length;
  }
  expect(bytes).toBe(100 * (64 << 10));
  expect((await refusal(read(`http://127.0.0.1:${port}/ends`, reach(), within))).message).toMatch(/nothing was heard for 0.6 s/);
});

test('a name that is no UTF-8 is a name', () => {
  expect(httpFile('http://127.0.0.1/a%ff%20b.csv', undefined, context(), reach()).relative).toBe('a%ff%20b.csv');
  expect(httpFile('http://127.0.0.1/a%20b%.csv', undefined, context(), reach()).relative).toBe('a b%.csv');
});
