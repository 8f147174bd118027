/**
 * The rule `messages/decide-nothing`: no branch on what a text for people says. Whoever edits the words would change what the program
 * does; a decision needs a code, a kind or a boolean beside the text. It sees names alone: a `why`, `reason`, `message`, `description`
 * or `detail` that is searched, matched, or compared with words. Where only a text of somebody else's program tells, the line says so:
 * `// oxlint-disable-next-line messages/decide-nothing -- why there is no code`.
 */

const TEXT = /(?:^(?:why|reason|message|description|detail)|(?:Why|Reason|Message|Description|Detail))$/;
const SEARCHES = new Set(['startsWith', 'endsWith', 'includes', 'match', 'matchAll', 'search', 'indexOf', 'lastIndexOf']);
const TESTS = new Set(['test', 'exec']);
const COMPARISONS = new Set(['===', '!==', '==', '!=']);

/** @typedef {import('@oxlint/plugins').ESTree.Node} Node */

/**
 * Whether an expression is a text for people, by its last name; also what is cut from it or written with it.
 * @param {Node | undefined} node
 * @returns {boolean}
 */
function isText(node) {
  switch (node?.type) {
    case 'Identifier':
      return TEXT.test(node.name);
    case 'MemberExpression':
      return isText(node.property) || (node.property.type === 'Literal' && TEXT.test(String(node.property.value)));
    case 'ChainExpression':
    case 'TSNonNullExpression':
    case 'TSAsExpression':
      return isText(node.expression);
    case 'LogicalExpression':
      return isText(node.left);
    case 'CallExpression': // message.trim().toLowerCase(), String(reason)
      return node.callee.type === 'MemberExpression'
        ? isText(node.callee.object)
        : node.arguments.length === 1 && isText(node.arguments[0]);
    default:
      return false;
  }
}

/**
 * Words, not a code: with a space, or made from parts.
 * @param {Node} node
 */
const areWords = (node) => node.type === 'TemplateLiteral' || (node.type === 'Literal' && / /.test(String(node.value)));

/** @param {import('@oxlint/plugins').ESTree.CallExpression} call */
function asksText({ callee, arguments: given }) {
  if (callee.type !== 'MemberExpression' || callee.property.type !== 'Identifier') return false;
  if (SEARCHES.has(callee.property.name)) return isText(callee.object);
  return TESTS.has(callee.property.name) && isText(given[0]);
}

const decideNothing = {
  meta: {
    type: 'problem',
    messages: {
      decides: 'A text for people decides what happens here: give it a code, a kind or a boolean beside the text, and ask that.',
    },
    schema: [],
  },
  /** @param {{ report(finding: { node: Node, messageId: 'decides' }): void }} context */
  create(context) {
    /** @param {Node} node */
    const report = (node) => context.report({ node, messageId: 'decides' });
    return {
      /** @param {import('@oxlint/plugins').ESTree.CallExpression} node */
      CallExpression(node) {
        if (asksText(node)) report(node);
      },
      /** @param {import('@oxlint/plugins').ESTree.BinaryExpression} node */
      BinaryExpression(node) {
        const { left, right, operator } = node;
        if (!COMPARISONS.has(operator)) return;
        if ((isText(left) && areWords(right)) || (areWords(left) && isText(right))) report(node);
      },
      /** @param {import('@oxlint/plugins').ESTree.SwitchCase} node */
      SwitchCase(node) {
        const on = node.parent.type === 'SwitchStatement' ? node.parent.discriminant : undefined;
        if (node.test && areWords(node.test) && isText(on)) report(node);
      },
    };
  },
};

export default { meta: { name: 'messages' }, rules: { 'decide-nothing': decideNothing } };
