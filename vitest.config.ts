import { defineConfig } from 'vitest/config';

/** Unit tests run from the sources: the `paceline-source` export condition of our packages points at src/. */
export default defineConfig({
  resolve: { conditions: ['paceline-source', 'node', 'development|production'] },
  ssr: { resolve: { conditions: ['paceline-source', 'node', 'development|production'] } },
  test: {
    include: ['libs/**/src/**/*.test.ts', 'apps/**/src/**/*.test.{ts,tsx}'],
    testTimeout: 240_000,
    hookTimeout: 240_000,
    fileParallelism: true,
    maxWorkers: 2,
    // Clusters in one process go by the clock of the machine (a peer is silent for 300 ms): one more try on a busy one, named at the end of the suite.
    retry: process.env['CI'] ? 1 : 0,
  },
});
