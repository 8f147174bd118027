/** How much a command loads before it does anything: what lists runs must not pay for what starts databases or trains. */
import { spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const PROGRAM = join(ROOT, 'apps/cli/bin/paceline.mjs');
/**
 * Processor time, where a bare `node -e 0` takes 64 ms (measured, with the import that measures): `--version` took 116 ms there, `runs` 133. A slower
 * machine has as much more as its bare Node takes. One that loads the schema of the run spec took 370 ms.
 */
const CPU_BOUND_MS = 150;
const BOUND_TO_BARE = CPU_BOUND_MS / 64;
const MEASUREMENTS = 5;
/** The loaded files together have at most so many bytes: what is read is compiled. */
const MOST_BYTES = 220_000;

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

/** @param words of Node, after its import */
async function stderrOf(words: readonly string[], imported: string): Promise<string> {
  const child = spawn(process.execPath, ['--import', imported, ...words], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await new Promise((done) => child.once('close', done));
  return text;
}

describe.each([[['--version']], [['--help']], [['runs']], [['run', '01a1fe42-ecf7-739d-bc94-6d36d2ce8924']]])('paceline %j', (args) => {
  it('loads the command line and the client, and commander of all packages', async () => {
    const urls = (await stderrOf([PROGRAM, ...args], LISTING)).split('\n').flatMap((line) => /^loads (file:.*)$/.exec(line)?.[1] ?? []);
    const files = urls.map((url) => relative(ROOT, fileURLToPath(url)));
    expect(files).toContain('apps/cli/dist/program.js');
    const packages = new Set(files.flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []));
    expect([...packages]).toEqual(['commander']);
    const libraries = files.filter((file) => file.startsWith('libs/') && !file.startsWith('libs/client/'));
    expect(
      libraries.every((file) =>
        /^libs\/(spec\/dist\/(metric-forms|shard-holders)|runtime\/dist\/(end-process|exit-codes|process-lock|user-directories|user-error))\.js$/.test(
          file,
        ),
      ),
      libraries.join(),
    ).toBe(true);
    expect(files.length, 'each file costs half a millisecond').toBeLessThan(50);
    const bytes = files.reduce((sum, file) => sum + statSync(join(ROOT, file)).size, 0);
    expect(bytes, 'what is read is compiled').toBeLessThan(MOST_BYTES);
  });

  // Processor time depends on what else the machine does: `npm run soak` asks for it.
  it.runIf(process.env['PACELINE_SOAK'] === '1')(
    `takes at most ${CPU_BOUND_MS} ms of a processor, or as much more as a bare Node takes here`,
    async () => {
      const [bare, own]: [number[], number[]] = [[], []];
      // One after the other, so that what else runs slows both down.
      for (let i = 0; i < MEASUREMENTS; i++) {
        bare.push(await cpuMsOf(['-e', '0']));
        own.push(await cpuMsOf([PROGRAM, ...args]));
      }
      const bound = Math.max(CPU_BOUND_MS, BOUND_TO_BARE * median(bare));
      expect(median(own), `own ${own.join()}; bare ${bare.join()}`).toBeLessThanOrEqual(bound);
    },
  );
});

const cpuMsOf = async (words: readonly string[]): Promise<number> => Number(/cpu (\d+)/.exec(await stderrOf(words, MEASURING))![1]) / 1000;
const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;
