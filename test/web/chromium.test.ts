import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { findChromium } from './chromium.js';

describe('finding a Chromium', () => {
  it('takes the one of the npm package when there is none on PATH, and it starts', () => {
    if (process.platform !== 'linux' || process.arch !== 'x64') return;
    const program = findChromium({ PATH: '/nowhere' });
    expect(program.source).toBe('npm');
    const { stdout, stderr } = spawnSync(program.path, ['--version'], { env: { ...program.env }, timeout: 20_000 });
    expect(`${stdout}${stderr}`).toMatch(/Chromium \d+\./);
  });
  it('refuses a CHROMIUM_PATH that is no program', () => {
    expect(() => findChromium({ CHROMIUM_PATH: '/nowhere/chromium' })).toThrow('/nowhere/chromium, which is no program');
  });
});
