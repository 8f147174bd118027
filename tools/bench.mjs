/**
 * Runs one bench: `npm run bench -- NAME [flags]`, each a file bench/NAME.mjs that prints a table, or one line of JSON with
 * `--json`. Benches measure what is built, so build first.
 */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = new URL('../bench/', import.meta.url);
/** A bench names itself in the first line of its header: ` * bench NAME: what it measures`. */
const TITLE = /^ \* bench (?<name>[a-z-]+): (?<what>.*)$/mu;

function benches() {
  const titles = readdirSync(folder)
    .filter((file) => file.endsWith('.mjs'))
    .map((file) => TITLE.exec(readFileSync(new URL(file, folder), 'utf8'))?.groups);
  return titles.filter((title) => title !== undefined);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const [name, ...rest] = process.argv.slice(2);
const known = benches();
if (!known.some((bench) => bench.name === name)) {
  const list = known.map((bench) => `  ${bench.name.padEnd(6)} ${bench.what}`).join('\n');
  fail(`${name ? `There is no bench "${name}". ` : ''}Use: npm run bench -- NAME [--json]\n${list}`);
}
if (
  !existsSync(new URL('../libs/exchange/dist/index.js', import.meta.url)) ||
  !existsSync(new URL('../libs/kernels/dist/kernels.wasm', import.meta.url))
) {
  fail('Nothing is built yet: run "npm run build" first.');
}
const child = spawn(process.execPath, [fileURLToPath(new URL(`${name}.mjs`, folder)), ...rest], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => process.exit(signal ? 1 : code));
