/** How much a command loads before it does anything: what lists runs must not pay for what starts databases or trains. */
import { spawn } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const PROGRAM = join(ROOT, 'apps/cli/bin/paceline.mjs');
/** Bare Node takes 40 to 60 ms of it, and slow machines three times as long; one that loads the schema of the run spec takes 370. */
const CPU_BOUND_MS = 250;

/** Prints every module that is loaded, in a line of its own. */
const LISTING = `data:text/javascript,${encodeURIComponent(`
import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(\`
import { writeSync } from 'node:fs';
export async function load(url, context, next) { writeSync(2, 'loads ' + url + '\\\\n'); return next(url, context); }\`));`)}`;
const MEASURING = `data:text/javascript,${encodeURIComponent(`
import { writeSync } from 'node:fs';
process.on('exit', () => { const { userCPUTime, systemCPUTime } = process.resourceUsage(); writeSync(2, 'cpu ' + (userCPUTime + systemCPUTime)); });`)}`;

let server: Server;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  const runs = { totalCount: 0, edges: [], pageInfo: { hasNextPage: false, endCursor: null } };
  server = createServer((_request, response) =>
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ data: { runs, run: null } })),
  );
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { PATH, HOME } = process.env;
  env = { PATH, HOME, PACELINE_URL: `http://127.0.0.1:${(server.address() as { port: number }).port}`, PACELINE_API_KEY: 'key' };
});
afterAll(() => server.close());

async function stderrOf(args: readonly string[], imported: string): Promise<string> {
  const child = spawn(process.execPath, ['--import', imported, PROGRAM, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await new Promise((done) => child.once('close', done));
  return text;
}

describe.each([[['--version']], [['--help']], [['runs']], [['run', '01a1fe42-ecf7-739d-bc94-6d36d2ce8924']]])('paceline %j', (args) => {
  it('loads the command line and the client, and commander of all packages', async () => {
    const urls = (await stderrOf(args, LISTING)).split('\n').flatMap((line) => /^loads (file:.*)$/.exec(line)?.[1] ?? []);
    const files = urls.map((url) => relative(ROOT, fileURLToPath(url)));
    expect(files).toContain('apps/cli/dist/program.js');
    const packages = new Set(files.flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []));
    expect([...packages]).toEqual(['commander']);
    const libraries = files.filter((file) => file.startsWith('libs/') && !file.startsWith('libs/client/'));
    expect(
      libraries.every((file) =>
        /^libs\/(spec\/dist\/metric-forms|runtime\/dist\/(end-process|exit-codes|process-lock|user-directories|user-error))\.js$/.test(
          file,
        ),
      ),
      libraries.join(),
    ).toBe(true);
    expect(files.length, 'each file costs half a millisecond').toBeLessThan(50);
  });

  it(`takes less than ${CPU_BOUND_MS} ms of a processor, at best`, async () => {
    const measured: number[] = [];
    while (measured.length < 6 && Math.min(...measured, Infinity) >= CPU_BOUND_MS)
      measured.push(Number(/cpu (\d+)/.exec(await stderrOf(args, MEASURING))![1]) / 1000);
    expect(Math.min(...measured), measured.join()).toBeLessThan(CPU_BOUND_MS);
  });
});
