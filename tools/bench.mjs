/**
 * Runs one bench: `npm run bench -- NAME [flags]`, each a file bench/NAME.mjs that prints a table, or one line of JSON with
 * `--json`; `--help` prints its header and its flags. Benches measure what is built, so build first.
 */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const folder = new URL('../bench/', import.meta.url);
/** A bench names itself in the first line of its header: ` * bench NAME: what it measures`. */
const TITLE = /^ \* bench (?<name>[a-z-]+): (?<what>.*)$/mu;

/** @returns {{ name: string, what: string }[]} */
function benches() {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.mjs'))
    .flatMap((file) => {
      const { name, what } = TITLE.exec(readFileSync(new URL(file, folder), 'utf8'))?.groups ?? {};
      return name !== undefined && what !== undefined ? [{ name, what }] : [];
    });
}

/**
 * What the header of a bench says, and the flags that it declares; `--child` is for its own processes.
 * @param {string} name
 */
function help(name) {
  const source = readFileSync(new URL(`${name}.mjs`, folder), 'utf8');
  const header = source
    .slice(source.indexOf('/**') + 3, source.indexOf('*/'))
    .replaceAll(/^ ?\* ?/gmu, '')
    .trim();
  const declared = /parseArgs\(\{\s*options: \{(?<flags>.*?)\n {2}\}/su.exec(source)?.groups?.['flags'] ?? '';
  const flags = [...declared.matchAll(/^\s*'?(?<flag>[a-z-]+)'?: \{ type: '(?<type>[a-z]+)'(?:, default: '?(?<standard>[^'}]*?)'? )?/gmu)]
    .map(({ groups = {} }) => groups)
    .filter((groups) => groups['flag'] !== 'child')
    .map(({ flag, type, standard }) => `  --${flag}${type === 'string' ? ` ${standard || 'VALUE'}` : ''}`);
  return `${header}\n\nUse: npm run bench -- ${name} [flags]; flags with a value are shown with what they are by default\n${flags.join('\n')}\n`;
}

/** @param {string | undefined} flag */
function isHelp(flag) {
  return flag === '--help' || flag === '-h';
}

/** @param {string} message */
function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

const [name, ...rest] = process.argv.slice(2);
const known = benches();
if (!known.some((bench) => bench.name === name)) {
  const list = known.map((bench) => `  ${bench.name.padEnd(11)} ${bench.what}`).join('\n');
  if (isHelp(name)) {
    process.stdout.write(`Use: npm run bench -- NAME [--json], or NAME --help\n${list}\n`);
    process.exit(0);
  }
  fail(`${name ? `There is no bench "${name}". ` : ''}Use: npm run bench -- NAME [--json]\n${list}`);
}
if (rest.some(isHelp)) {
  process.stdout.write(help(name));
  process.exit(0);
}
if (
  !existsSync(new URL('../libs/exchange/dist/index.js', import.meta.url)) ||
  !existsSync(new URL('../libs/kernels/dist/kernels.wasm', import.meta.url))
) {
  fail('Nothing is built yet: run "npm run build" first.');
}
const child = spawn(process.execPath, [fileURLToPath(new URL(`${name}.mjs`, folder)), ...rest], { stdio: 'inherit' });
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => process.exit(signal ? 1 : code));
