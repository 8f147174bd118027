/**
 * What lies inside the npm package `@sparticuz/chromium`, a development dependency for Linux on x64: Brotli archives of 66 MB with a browser, its
 * libraries, and a software driver for Vulkan. Its own loader unpacks to fixed names under /tmp; here it is unpacked into node_modules/.cache, once.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';

export const PACKAGE = '@sparticuz/chromium';

/** Undefined where it is not installed, or is of no use. */
export function packageFolder(): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return undefined;
  const folders = createRequire(import.meta.url).resolve.paths(PACKAGE) ?? [];
  return folders.map((folder) => join(folder, PACKAGE)).find((folder) => existsSync(join(folder, 'bin', 'chromium.br')));
}

/**
 * The folder with what `fill` puts into it, made once per version of the package, whole or not at all.
 * @param fill is given the folder to fill and the one that it will be renamed to
 */
export function unpackedOnce(folder: string, name: string, fill: (making: string, place: string) => void): string {
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string };
  const place = join(dirname(dirname(folder)), '.cache', `paceline-${name}-${version}`);
  if (existsSync(place)) return place;
  mkdirSync(dirname(place), { recursive: true });
  const making = mkdtempSync(`${place}-`);
  try {
    fill(making, place);
    renameSync(making, place);
  } catch (error) {
    rmSync(making, { recursive: true, force: true });
    if (!existsSync(place)) throw error; // otherwise another process was faster
  }
  return place;
}

export const contentOf = (folder: string, archive: string): Buffer => brotliDecompressSync(readFileSync(join(folder, 'bin', archive)));

/** Unpacks an archive of the package that is a tar file into `place`. */
export function untar(folder: string, archive: string, place: string): void {
  const { status, stderr, error } = spawnSync('tar', ['-x', '-C', place], { input: contentOf(folder, archive) });
  if (status !== 0) throw new Error(`${archive} of ${PACKAGE} cannot be unpacked: ${error?.message ?? stderr.toString()}`);
}
