/**
 * Finds a Chromium and starts it. In this order: CHROMIUM_PATH, a browser on PATH, the one inside the npm package
 * `@sparticuz/chromium` (a development dependency for Linux on x64, so that the tests need nothing but Node and npm).
 *
 * That package is made for Amazon Lambda. It is unpacked in 3 s and once, with the libraries (NSS) and the font that a bare system may lack.
 */
import { accessSync, constants, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type BrowserContext, type BrowserContextOptions } from 'playwright-core';
import { contentOf, PACKAGE, packageFolder, unpackedOnce, untar } from './chromium-package.js';
import { patient } from '@paceline/testkit';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
const START_DEADLINE_MS = patient(30_000);

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
  const folder = packageFolder();
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

function unpacked(folder: string): ChromiumProgram {
  const place = unpackedOnce(folder, 'chromium', (making, finalPlace) => {
    writeFileSync(join(making, 'chromium'), contentOf(folder, 'chromium.br'), { mode: 0o755 });
    for (const archive of ['al2023.tar.br', 'fonts.tar.br']) untar(folder, archive, making);
    const fonts = ['/usr/share/fonts', join(finalPlace, 'fonts')].map((each) => `<dir>${each}</dir>`).join('');
    writeFileSync(
      join(making, 'fonts.conf'),
      `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>${fonts}<cachedir>${join(finalPlace, 'fonts-cache')}</cachedir></fontconfig>\n`,
    );
  });
  return {
    path: join(place, 'chromium'),
    source: 'npm',
    env: { LD_LIBRARY_PATH: join(place, 'lib'), FONTCONFIG_FILE: join(place, 'fonts.conf') },
  };
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
