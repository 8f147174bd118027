/** docs/reference/run-spec.md, made from the fields that libs/spec reads off its schema. */

/** @param {unknown} value */
const shown = (value) => (value === undefined ? '' : `\`${JSON.stringify(value)}\``);

/** @typedef {import('@paceline/spec').SurfaceField} Field */

/** @param {Field} field */
function typeOf({ kind, enumValues = [] }) {
  const values = enumValues.map((value) => `\`${value}\``).join(', ');
  if (kind === 'enum') return values;
  if (kind === 'string-list') return 'list of strings';
  return kind === 'enum-list' ? `list of ${values}` : kind;
}

/** @param {Field} field */
function boundsOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum, maxLength }) {
  const low = minimum !== undefined ? `≥ ${minimum}` : exclusiveMinimum !== undefined ? `> ${exclusiveMinimum}` : '';
  const high = maximum !== undefined ? `≤ ${maximum}` : exclusiveMaximum !== undefined ? `< ${exclusiveMaximum}` : '';
  return [low, high, maxLength !== undefined ? `≤ ${maxLength} characters` : ''].filter(Boolean).join(', ');
}

/**
 * @param {readonly import('@paceline/spec').SurfaceField[]} fields
 * @param {readonly string[]} allowedLayers
 * @param {readonly string[]} allowedCells
 * @param {Readonly<Record<string, string>>} leftOut
 */
export function printRunSpecPage(fields, allowedLayers, allowedCells, leftOut) {
  /** @param {string} text */
  const cell = (text) => String(text).replaceAll('|', '\\|');
  /** @param {Field} field */
  const always = (field) =>
    fields.some(
      ({ path, enumValues }) => path.startsWith(field.path.replace(/[^.]*$/, '')) && enumValues?.length === field.onlyWith.length,
    );
  const rows = fields.map((field) => {
    const only =
      field.onlyWith.length > 0 && !always(field) ? ` Only with ${field.onlyWith.map((member) => `\`${member}\``).join(' or ')}.` : '';
    const elsewhere = field.specPath !== field.path ? ` In YAML and JSON: \`${field.specPath}\`.` : '';
    const required = field.required ? '**required**' : shown(field.default);
    return `| \`${field.path}\` | ${typeOf(field)} | ${cell(boundsOf(field))} | ${cell(required)} | ${cell(field.description + only + elsewhere)} |`;
  });
  return [
    '# Run spec',
    '',
    'Printed by `npm run docs` from the schema in `libs/spec/src/run-spec.ts`, which is also where the GraphQL input, the OpenAPI document, the',
    "CLI's flags and the types come from. Everything that has a default may be left out. An unknown field is an error.",
    '',
    '| field | type | bounds | default | |',
    '|---|---|---|---|---|',
    ...rows,
    '',
    '## Layers of a topology',
    '',
    'A topology is the `modelTopology` of a tf.js `model.json`, Sequential or functional. Nothing in it is executed, and only these layers are taken:',
    `${allowedLayers.map((name) => `\`${name}\``).join(', ')}.`,
    '',
    `The cell of an \`RNN\` is one of ${allowedCells.map((name) => `\`${name}\``).join(', ')}.`,
    '',
    'Left out, with what to write instead:',
    '',
    ...Object.entries(leftOut).map(([name, why]) => `- \`${name}\`: ${why}.`),
    '',
  ].join('\n');
}
