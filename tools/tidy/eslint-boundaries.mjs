/**
 * The rule `paceline/boundaries`: `@nx/enforce-module-boundaries` (directions between our packages, cycles, relative imports
 * across packages) with our reasons in its messages, and beside it the packages of the registry that a package must not
 * use. Nx alone says only which tags are allowed, and lets an import pass that it cannot resolve (an app without exports, a
 * client that is not generated yet); names are enough to refuse those.
 *
 * Nx's rule reads the project graph that Nx caches and is silently off without one. So the graph is made here, when ESLint
 * loads its configuration (0.5 s, no Nx daemon), and a graph that cannot be made stops lint.
 */
import { relative } from 'node:path';
import { createProjectGraphAsync, workspaceRoot } from '@nx/devkit';
import nx from '@nx/eslint-plugin';
import { APPS, BOUNDARIES, nxConstraints } from './boundaries.mjs';

process.env.NX_DAEMON ??= 'false';
await createProjectGraphAsync({ exitOnError: false });

const original = nx.rules['enforce-module-boundaries'];
const REASONED = ['onlyTagsConstraintViolation', 'emptyOnlyTagsConstraintViolation'];
const PLACE = 'The table is tools/tidy/boundaries.mjs.';

/** @param {string} sourceTag `name:learning` */
const reasonFor = (sourceTag) => `Why: ${BOUNDARIES[sourceTag.slice('name:'.length)]?.reason ?? 'it has no row in the table'}. ${PLACE}`;

/**
 * What is wrong with importing `target` from `file`, by names alone.
 * @param {string} file
 * @param {string} target
 */
function refusal(file, target) {
  const [, name] = /^(?:libs|apps)\/([^/]+)\//.exec(file) ?? [];
  const row = name && BOUNDARIES[name];
  if (!row) return undefined;
  if (APPS.some((app) => app !== name && (target === `@paceline/${app}` || target.startsWith(`@paceline/${app}/`)))) {
    return `${target} is an app, and nothing imports apps: each is a process of its own, and what two need belongs in a library.`;
  }
  if (row.mayNotUse.some((pattern) => new RegExp(pattern).test(target)))
    return `${name} must not use ${target}. Why: ${row.reason}. ${PLACE}`;
  return undefined;
}

/** @typedef {import('@typescript-eslint/utils').TSESTree.Node} Node */
/** @typedef {{ node: Node, messageId: string, data: Record<string, string> }} Finding */
/** @typedef {Record<string, (node: Node) => void>} Visitors */
/** @typedef {{ filename: string, report(finding: Finding): void }} Context of ESLint, as far as it matters here */
/** Nx does not say what its rule's `create` takes. */
const originalVisitors = /** @type {(context: Context) => Visitors} */ (/** @type {unknown} */ (original.create));

const boundaries = {
  ...original,
  meta: {
    ...original.meta,
    messages: {
      ...original.meta.messages,
      ...Object.fromEntries(REASONED.map((id) => [id, `${original.meta.messages[id]}. {{reason}}`])),
      refused: '{{why}}',
    },
  },
  /** @param {Context} context */
  create(context) {
    const file = relative(workspaceRoot, context.filename).replaceAll('\\', '/');
    /** @type {Context} */
    const reasoned = Object.create(context, {
      report: {
        /** @param {Finding} report */
        value(report) {
          const reason = REASONED.includes(report.messageId) ? { reason: reasonFor(report.data['sourceTag'] ?? '') } : {};
          context.report({ ...report, data: { ...report.data, ...reason } });
        },
      },
    });
    const visitors = originalVisitors(reasoned);
    /** @param {string} type */
    const byName = (type) => (/** @type {Node} */ node) => {
      const source = 'source' in node ? node.source : undefined;
      const target = source?.type === 'Literal' ? source.value : undefined;
      if (typeof target === 'string' && target.startsWith('#')) return; // a package's own file, by its import map
      const why = typeof target === 'string' ? refusal(file, target) : undefined;
      if (why) context.report({ node, messageId: 'refused', data: { why } });
      else visitors[type]?.(node);
    };
    const types = ['ImportDeclaration', 'ImportExpression', 'ExportNamedDeclaration', 'ExportAllDeclaration'];
    return { ...visitors, ...Object.fromEntries(types.map((type) => [type, byName(type)])) };
  },
};

export default {
  rules: { boundaries },
  /** Options for `paceline/boundaries`. */
  options: { allow: [], depConstraints: nxConstraints() },
};
