import { defineConfig } from 'vitest/config';
import LongestFirst from './tools/longest-first.js';

/** Libraries and apps whose tests leave nothing behind in their process, so that files share what they import: a third of the time of many small files. */
const TOGETHER = [
  ...[
    'client',
    'codecs',
    'collectives',
    'control-plane',
    'data',
    'exchange',
    'hosting',
    'kernels',
    'learning',
    'protocol',
    'spec',
    'storage',
    'testkit/src/simulator',
  ].map((folder) => `libs/${folder}/**/*.test.ts`),
  ...['api', 'cli', 'dashboard', 'worker'].map((app) => `apps/${app}/src/**/*.test.{ts,tsx}`),
];

/**
 * Libraries whose tests start engines, one after the other in a process: what a file has started, the next one starts anew. Loading tf.js and the
 * engine costs 0.7 s of processor time, which most of the files do not compute for.
 */
const ENGINES = ['engine', 'ingest', 'models'].map((folder) => `libs/${folder}/src/**/*.test.ts`);
/** Strategies change the tf.js of their process, so none of the engines' tests shares one with them. */
const STRATEGIES = ['libs/strategies/src/**/*.test.ts'];
/** A module that is mocked has to be loaded by nobody before, and an engine with relaxed SIMD is chosen before any other. */
const ALONE = [
  ...['sparse', 'relaxed'].map((name) => `libs/engine/src/backends/wasm/${name}.test.ts`),
  'libs/collectives/src/socket-transport.test.ts',
];

/** Unit tests run from the sources: the `paceline-source` export condition of our packages points at src/. */
export default defineConfig({
  resolve: { conditions: ['paceline-source', 'node', 'development|production'] },
  ssr: { resolve: { conditions: ['paceline-source', 'node', 'development|production'] } },
  test: {
    testTimeout: 240_000,
    hookTimeout: 240_000,
    // It says that something hangs, not that it is slow.
    expect: { poll: { timeout: 120_000 } },
    setupFiles: [import.meta.dirname + '/tools/test-cpu.ts'],
    fileParallelism: true,
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    // `npm run coverage`: what the unit tests reach. Processes that tests start are not measured.
    coverage: {
      provider: 'v8',
      include: ['libs/*/src/**/*.ts', 'apps/*/src/**/*.{ts,tsx}'],
      exclude: ['**/*.{test,fixture}.*', '**/generated/**', 'libs/testkit/**'],
      reporter: ['text-summary', 'html', 'lcov'],
      reportsDirectory: 'coverage',
    },
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          include: TOGETHER,
          exclude: ['**/node_modules/**', '**/dist/**', ...ALONE],
          isolate: false,
          restoreMocks: true,
        },
      },
      {
        extends: true,
        test: {
          name: 'engines',
          include: ENGINES,
          exclude: ['**/node_modules/**', '**/dist/**', ...ALONE],
          isolate: false,
          restoreMocks: true,
        },
      },
      { extends: true, test: { name: 'strategies', include: STRATEGIES, isolate: false, restoreMocks: true } },
      { extends: true, test: { name: 'alone', include: ALONE } },
      // A thread has one engine at a time; processes, environment variables and folders are those of a process.
      {
        extends: true,
        test: {
          name: 'apart',
          include: ['libs/**/src/**/*.test.ts', 'apps/**/src/**/*.test.{ts,tsx}'],
          exclude: ['**/node_modules/**', '**/dist/**', ...TOGETHER, ...ENGINES, ...STRATEGIES],
        },
      },
    ],
  },
});
