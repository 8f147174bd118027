/**
 * Compiles the AssemblyScript of assembly/ to dist/*.wasm, where both src/ and dist/ find them: the kernels over arenas, and the training
 * kernels over the heap of the tf.js wasm backend, plain and with fused multiply-add (relaxed SIMD).
 * Written beside the target and renamed, so that a process that starts meanwhile never reads half a module.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import asc from 'assemblyscript/asc';
import { elementwiseKernels } from './elementwise-kernels.mjs';
import { microKernels } from './micro-kernels.mjs';

const root = fileURLToPath(new URL('.', import.meta.url));
const MAXIMUM_PAGES = 65_535; // all but one of 4 GiB, the bound of an arena (src/arena.ts)
/** Sources that exist only while a module is compiled. */
const GENERATED = new Map([
  [path.normalize('assembly/elementwise.ts'), elementwiseKernels],
  [path.normalize('assembly/training/micro-kernels.ts'), microKernels],
]);

// oxfmt-ignore
const COMMON = ['--baseDir', root, '--optimizeLevel', '3', '--shrinkLevel', '0', '--converge', '--noAssert', '--runtime', 'stub',
  '--enable', 'simd', '--importMemory', '--noExportMemory', '--initialMemory', '1'];

function readSource(file, relaxed) {
  const generate = GENERATED.get(path.normalize(file));
  if (generate) return generate(relaxed);
  try {
    return readFileSync(path.resolve(root, file), 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return null; // the compiler looks in several places
    throw error;
  }
}

async function compile(entry, outFile, flags, relaxed = false) {
  let binary;
  const { error, stderr } = await asc.main([entry, '--outFile', outFile, ...COMMON, ...flags], {
    readFile: (file) => readSource(file, relaxed),
    writeFile: (_name, contents) => void (binary = contents),
  });
  if (error || !binary) {
    process.stderr.write(`${entry} does not compile: ${error?.message ?? 'no output'}\n${stderr.toString()}`);
    process.exit(1);
  }
  return binary;
}

function write(outFile, binary) {
  const target = fileURLToPath(new URL(`./dist/${outFile}`, import.meta.url));
  const partial = `${target}.${process.pid}`;
  mkdirSync(path.dirname(target), { recursive: true });
  try {
    writeFileSync(partial, binary);
    renameSync(partial, target);
  } finally {
    rmSync(partial, { force: true });
  }
}

const shared = ['--enable', 'threads', '--sharedMemory', '--maximumMemory', String(MAXIMUM_PAGES)];
write('kernels.wasm', await compile('assembly/kernels.ts', 'kernels.wasm', shared));
write('training.wasm', await compile('assembly/training/module.ts', 'training.wasm', []));
write('training-relaxed.wasm', await compile('assembly/training/module.ts', 'training-relaxed.wasm', ['--enable', 'relaxed-simd'], true));
