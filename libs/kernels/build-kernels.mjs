/**
 * Compiles assembly/kernels.ts to dist/kernels.wasm, where both src/ and dist/ find it.
 * Written beside the target and renamed, so that a process that starts meanwhile never reads half a module.
 */
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import asc from 'assemblyscript/asc';

const root = fileURLToPath(new URL('.', import.meta.url));
const MAXIMUM_PAGES = 16_384; // 1 GiB, the bound of an arena (src/arena.ts checks that they agree)

let binary;
const { error, stderr } = await asc.main(
  [
    'assembly/kernels.ts',
    '--baseDir',
    root,
    '--outFile',
    'kernels.wasm',
    '--optimizeLevel',
    '3',
    '--shrinkLevel',
    '0',
    '--converge',
    '--noAssert',
    '--runtime',
    'stub',
    '--enable',
    'simd',
    '--enable',
    'threads',
    '--importMemory',
    '--noExportMemory',
    '--sharedMemory',
    '--initialMemory',
    '1',
    '--maximumMemory',
    String(MAXIMUM_PAGES),
  ],
  { writeFile: (_name, contents) => void (binary = contents) },
);
if (error || !binary) {
  process.stderr.write(`The kernels do not compile: ${error?.message ?? 'no output'}\n${stderr.toString()}`);
  process.exit(1);
}

const target = fileURLToPath(new URL('./dist/kernels.wasm', import.meta.url));
const partial = `${target}.${process.pid}`;
mkdirSync(fileURLToPath(new URL('./dist', import.meta.url)), { recursive: true });
try {
  writeFileSync(partial, binary);
  renameSync(partial, target);
} finally {
  rmSync(partial, { force: true });
}
