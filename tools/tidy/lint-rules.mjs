/**
 * Rules of lint that nobody publishes, for oxlint (oxlint.config.json):
 *
 * | rule | refuses |
 * |---|---|
 * | `paceline/boundaries` | an import against the table in boundaries.mjs, of an app, or by a path into another package; the message says why the table has it so |
 * | `paceline/no-spread-literal` | `{ ...{ a } }`, which escapes the check for unknown properties |
 * | `paceline/no-empty-catch` | `catch {}` and `.catch(() => {})` |
 *
 * They see one file each, and names alone. tools/tidy/house.test.ts holds the table a second time, with what each package.json declares.
 */
import { dirname, join, relative } from 'node:path';
import { APPS, BOUNDARIES, TEST_ONLY } from './boundaries.mjs';

const root = join(import.meta.dirname, '..', '..');
const PLACE = 'The table is tools/tidy/boundaries.mjs.';

/** @typedef {import('@oxlint/plugins').ESTree.Node} Node */
/** @typedef {{ filename: string, report(finding: { node: Node, message: string }): void }} Context of a rule, as far as it matters here */

/** @param {string} path relative to the root */
const packageOf = (path) => /^(?:libs|apps)\/([^/]+)\//.exec(path.replaceAll('\\', '/'))?.[1];

/**
 * What is wrong with importing `target` from `file`.
 * @param {string} file relative to the root
 * @param {string} target
 * @returns {string | undefined}
 */
function refusal(file, target) {
  const name = packageOf(file);
  const row = name && BOUNDARIES[name];
  if (!row) return undefined;
  if (target.startsWith('.'))
    return packageOf(join(dirname(file), target)) === name
      ? undefined
      : `${target} leaves the package: import another one by its name, @paceline/….`;
  if (APPS.some((app) => app !== name && (target === `@paceline/${app}` || target.startsWith(`@paceline/${app}/`))))
    return `${target} is an app, and nothing imports apps: each is a process of its own, and what two need belongs in a library.`;
  const own = /^@paceline\/([^/]+)/.exec(target)?.[1];
  if (target === `@paceline/${name}`)
    return `${target} is this package: import the file itself, because through index.ts it would be a cycle.`;
  if (own && ![name, ...row.mayImport, ...TEST_ONLY].includes(own)) return `${name} may not import ${target}. Why: ${row.reason}. ${PLACE}`;
  if (row.mayNotUse.some((pattern) => new RegExp(pattern).test(target)))
    return `${name} must not use ${target}. Why: ${row.reason}. ${PLACE}`;
  return undefined;
}

const boundaries = {
  /** @param {Context} context */
  create(context) {
    const file = relative(root, context.filename);
    /** @param {Node} node */
    const check = (node) => {
      const target = 'source' in node && node.source && 'value' in node.source ? node.source.value : undefined;
      const message = typeof target === 'string' ? refusal(file, target) : undefined;
      if (message) context.report({ node, message });
    };
    return { ImportDeclaration: check, ImportExpression: check, ExportNamedDeclaration: check, ExportAllDeclaration: check };
  },
};

const noSpreadLiteral = {
  /** @param {Context} context */
  create(context) {
    return {
      /** @param {import('@oxlint/plugins').ESTree.SpreadElement} node */
      SpreadElement(node) {
        if (node.parent.type !== 'ObjectExpression' || node.argument.type !== 'ObjectExpression') return;
        context.report({
          node: node.argument,
          message: 'A spread literal escapes the check for unknown properties: write its properties into the object itself.',
        });
      },
    };
  },
};

/** @param {Node | null | undefined} node */
const isEmptyBlock = (node) => node?.type === 'BlockStatement' && node.body.length === 0;

const noEmptyCatch = {
  /** @param {Context} context */
  create(context) {
    return {
      /** @param {import('@oxlint/plugins').ESTree.CatchClause} node */
      CatchClause(node) {
        if (!isEmptyBlock(node.body)) return;
        context.report({ node, message: 'An empty catch swallows a failure: handle it, count it, or rethrow it.' });
      },
      /** @param {import('@oxlint/plugins').ESTree.CallExpression} node */
      CallExpression({ callee, arguments: [handler] }) {
        const isCatch = callee.type === 'MemberExpression' && callee.property.type === 'Identifier' && callee.property.name === 'catch';
        if (!isCatch || handler?.type !== 'ArrowFunctionExpression' || !isEmptyBlock(handler.body)) return;
        context.report({
          node: handler,
          message: 'An empty .catch swallows a failure: handle it, count it, or say in the code why it cannot matter.',
        });
      },
    };
  },
};

export default {
  meta: { name: 'paceline' },
  rules: { boundaries, 'no-spread-literal': noSpreadLiteral, 'no-empty-catch': noEmptyCatch },
};
