/**
 * ESLint holds what needs syntax: import directions, sizes, swallowed errors. What needs types (forgotten promises) is oxlint's, oxlint.config.json.
 * What can be read from names and texts is held by tools/tidy; how code looks is oxfmt's.
 */
import tseslint from 'typescript-eslint';
import paceline from './tools/tidy/eslint-boundaries.mjs';
import messages from './tools/tidy/eslint-messages.mjs';

const PROSE_DOES_NOT_COUNT = { skipBlankLines: true, skipComments: true };

const sizes = {
  'max-lines': ['error', { max: 400, ...PROSE_DOES_NOT_COUNT }],
  'max-lines-per-function': ['error', { max: 70, ...PROSE_DOES_NOT_COUNT, IIFEs: true }],
  'max-params': ['error', 8],
};

const nothingIsSwallowed = {
  'no-empty': ['error', { allowEmptyCatch: false }],
  'no-unsafe-finally': 'error',
  'no-ex-assign': 'error',
  'no-restricted-syntax': [
    'error',
    {
      selector: 'ObjectExpression > SpreadElement > ObjectExpression',
      message: 'A spread literal escapes the check for unknown properties: write its properties into the object itself.',
    },
    {
      selector: 'CatchClause > BlockStatement[body.length=0]',
      message: 'An empty catch swallows a failure: handle it, count it, or rethrow it.',
    },
    {
      selector: "CallExpression[callee.property.name='catch'] > ArrowFunctionExpression > BlockStatement[body.length=0]",
      message: 'An empty .catch swallows a failure: handle it, count it, or say in the code why it cannot matter.',
    },
  ],
};

const plainMistakes = {
  eqeqeq: ['error', 'always', { null: 'ignore' }],
  'no-constant-condition': ['error', { checkLoops: 'allExceptWhileTrue' }],
  'no-debugger': 'error',
  'no-dupe-else-if': 'error',
  'no-fallthrough': 'error',
  'no-self-compare': 'error',
  'no-template-curly-in-string': 'error',
  'no-unreachable-loop': 'error',
  'no-useless-assignment': 'error',
  'no-useless-catch': 'error',
  'no-var': 'error',
  'prefer-const': 'error',
  'no-restricted-imports': [
    'error',
    {
      paths: [{ name: '@paceline/testkit', message: 'testkit is for tests; what is installed for users must not need it.' }],
      patterns: [
        {
          group: ['@paceline/*/src/*', '@paceline/*/dist/*'],
          message: 'Import the package by its name: a library is used through its index.ts.',
        },
        { regex: '^\\.{1,2}(/.*)?/index\\.js$', message: 'Inside a library import the file itself: through index.ts it would be a cycle.' },
      ],
    },
  ],
};

const types = {
  '@typescript-eslint/no-explicit-any': 'error',
  '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true }],
  '@typescript-eslint/no-require-imports': 'error',
  '@typescript-eslint/ban-ts-comment': ['error', { 'ts-expect-error': 'allow-with-description', minimumDescriptionLength: 10 }],
};

export default tseslint.config(
  {
    ignores: [
      '**/node_modules/**',
      '**/dist/**',
      '**/generated/**',
      '**/coverage/**',
      '.nx/**',
      '.paceline/**',
      '**/.paceline/**',
      'libs/kernels/assembly/**', // AssemblyScript: its own compiler checks it
      'libs/*/build/**',
    ],
  },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.{js,mjs,ts,tsx,mts}'],
    plugins: { '@typescript-eslint': tseslint.plugin, paceline },
    languageOptions: { parser: tseslint.parser, parserOptions: { ecmaFeatures: { jsx: true } } },
    rules: { ...sizes, ...nothingIsSwallowed, ...plainMistakes, ...types },
  },
  {
    // Tools, tests and benchmarks stand above all packages and may use any.
    files: ['{libs,apps}/*/src/**/*.{ts,tsx}'],
    rules: { 'paceline/boundaries': ['error', paceline.options] },
  },
  {
    // Tests look into texts to see what people are told.
    files: ['{libs,apps}/*/src/**/*.{ts,tsx}'],
    ignores: ['**/*.{test,fixture}.{ts,tsx}'],
    plugins: { messages },
    rules: { 'messages/decide-nothing': 'error' },
  },
  {
    // A list of seeds that failed once, what is generated from documents, and scenarios on one stack: a row more makes them no harder to read.
    files: [
      'libs/testkit/src/simulator/faults/regressions*.ts',
      'apps/dashboard/src/graphql/operations.ts',
      'test/api/{datasets,reading}.test.ts',
    ],
    rules: { 'max-lines': 'off' },
  },
  {
    // A test is a list of scenarios: its describe blocks are long, and it may use the testkit.
    files: ['**/*.test.{ts,tsx}', 'test/**', 'libs/testkit/**', 'bench/**'],
    rules: { 'max-lines-per-function': 'off', 'no-restricted-imports': 'off' },
  },
);
