import { defineConfig } from 'vitest/config';
import LongestFirst from '../tools/longest-first.js';

/**
 * tools/test.mjs sets it, as it has built before: tests load the libraries from `dist`, as processes do. To compile their sources in each test process takes
 * longer. When vitest is started by hand, the sources are loaded.
 */
const isBuilt = process.env['PACELINE_BUILT'] === '1';
const conditions = [...(isBuilt ? [] : ['paceline-source']), 'node', 'development|production'];

/**
 * Tests that need more than one file: real processes, databases, a browser, or the whole tree. One at a time, each in a
 * fork of its own, with time for processes to start. `npm test -- api` runs one folder; see tools/test.mjs.
 */
export default defineConfig({
  root: import.meta.dirname + '/..',
  // Frameworks outside the transform load graphql's CommonJS build; a second copy (its ES build) would refuse their schemas.
  resolve: { conditions, alias: [{ find: /^graphql$/, replacement: import.meta.dirname + '/../node_modules/graphql/index.js' }] },
  ssr: { resolve: { conditions } },
  test: {
    include: ['test/**/*.test.ts', 'tools/**/*.test.ts'],
    setupFiles: [import.meta.dirname + '/../tools/test-cpu.ts'],
    server: { deps: { external: [/\/libs\/[\w-]+\/dist\//] } },
    pool: 'forks',
    fileParallelism: false,
    sequence: { sequencer: LongestFirst },
    // Of tests that say that they are concurrent: they start processes, and mostly wait for them.
    maxConcurrency: 2,
    testTimeout: 480_000,
    hookTimeout: 480_000,
    // It says that something hangs, not that it is slow.
    expect: { poll: { timeout: 120_000 } },
    teardownTimeout: 30_000,
  },
});
