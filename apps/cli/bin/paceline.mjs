#!/usr/bin/env node
/** The `paceline` command: runs the built program beside it. */
import { existsSync } from 'node:fs';
import module from 'node:module';

const main = new URL('../dist/main.js', import.meta.url);
module.enableCompileCache?.(); // Node ≥ 22.1: what was compiled once is kept
if (existsSync(main)) await import(main.href);
else {
  process.stderr.write('Paceline is not built yet. Run: npm run build\n');
  process.exitCode = 78;
}
