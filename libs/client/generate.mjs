/**
 * Makes typed documents of the GraphQL operations of the SDK and of the dashboard, from docs/reference/schema.graphql. A document that does not fit
 * the schema stops it. `npm run build` runs it; the api prints the schema (`npx tsc -b apps/api && npm run docs`).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { codegen } from '@graphql-codegen/core';
import * as typedDocuments from '@graphql-codegen/typed-document-node';
import * as operations from '@graphql-codegen/typescript-operations';
import { buildASTSchema, Kind, parse, visit } from 'graphql';

const root = join(import.meta.dirname, '../..');
const schema = parse(readFileSync(join(root, 'docs/reference/schema.graphql'), 'utf8'));

// The spec is derived from its zod schema: @paceline/spec has its types.
const SCALARS = { ID: 'string', DateTime: 'string', JSON: 'unknown', RunSpecInput: 'Readonly<Record<string, unknown>>' };
const MEASURES = 'Readonly<Record<string, number | null>>';
const VALIDATION = `{ readonly round: number; readonly examples: number; readonly values: ${MEASURES} }`;
/**
 * What the schema says too loosely of fields that the SDK returns: their JSON and their texts.
 * @type {Record<string, string>}
 */
const NARROWER = {
  'Run.spec': '@paceline/spec#RunSpec',
  'Dataset.format': '@paceline/spec#RowFormat',
  'DatasetColumn.kind': "'number' | 'category' | 'array' | 'sequence' | 'text' | 'image'",
  'DatasetColumn.statistics': 'Readonly<Record<string, unknown>>',
  'DatasetPreview.rows': 'readonly unknown[]',
  'RunProgress.values': MEASURES,
  'RunProgress.validation': VALIDATION,
  'RunResult.values': MEASURES,
  'RunMetric.values': MEASURES,
  'RunMetric.validation': VALIDATION,
  'MeasuredRound.values': MEASURES,
  'RunCourse.better': "'higher' | 'lower'",
  'PredictedClasses.kind': "'classes'",
  'PredictedValues.kind': "'values'",
  'UnpicturedOutput.kind': "'none'",
  'WrongExample.cells': 'readonly unknown[]',
  'WorstExample.cells': 'readonly unknown[]',
};

await generate('libs/client/src', ['operations'], NARROWER);
await generate('apps/dashboard/src/graphql', ['operations', 'course', 'predictions'], {});

/**
 * @param {string} folder
 * @param {readonly string[]} names documents; each becomes a module, as pages of the dashboard load some of them late
 * @param {Record<string, string>} narrower
 */
async function generate(folder, names, narrower) {
  const scalarOf = (/** @type {string} */ coordinate) => coordinate.replace('.', '_');
  const narrowed = narrowedSchema(narrower, scalarOf);
  for (const name of names) {
    const location = join(root, folder, `${name}.graphql`);
    const filename = join(root, folder, 'generated', `${name}.ts`);
    const text = await codegen({
      filename,
      schema: narrowed,
      schemaAst: buildASTSchema(narrowed),
      documents: [{ location, document: parse(readFileSync(location, 'utf8')) }],
      plugins: [{ operations: {} }, { typedDocuments: {} }],
      pluginMap: { operations, typedDocuments },
      config: {
        // Narrowed members of a union look as if they had different fields of one name.
        skipDocumentsValidation: { ignoreRules: ['OverlappingFieldsCanBeMergedRule'] },
        documentMode: 'string',
        immutableTypes: true,
        arrayInputCoercion: false,
        useTypeImports: true,
        skipTypename: true,
        namingConvention: 'keep',
        omitOperationSuffix: true,
        documentVariableSuffix: '',
        operationResultSuffix: 'Result',
        scalars: { ...SCALARS, ...Object.fromEntries(Object.entries(narrower).map(([at, type]) => [scalarOf(at), type])) },
      },
    });
    mkdirSync(dirname(filename), { recursive: true });
    writeFileSync(filename, text);
  }
}

/**
 * @param {Record<string, string>} narrower
 * @param {(coordinate: string) => string} scalarOf
 */
function narrowedSchema(narrower, scalarOf) {
  const narrowedField = (/** @type {string} */ coordinate, /** @type {import('graphql').FieldDefinitionNode} */ field) =>
    coordinate in narrower
      ? visit(field, { NamedType: (type) => ({ ...type, name: { ...type.name, value: scalarOf(coordinate) } }) })
      : field;
  const narrowed = visit(schema, {
    InputObjectTypeDefinition: (input) => (input.name.value in SCALARS ? { ...input, kind: Kind.SCALAR_TYPE_DEFINITION } : undefined),
    ObjectTypeDefinition: (type) => ({
      ...type,
      fields: type.fields?.map((field) => narrowedField(`${type.name.value}.${field.name.value}`, field)),
    }),
  });
  const scalars = Object.keys(narrower).map((coordinate) => `scalar ${scalarOf(coordinate)}`);
  return { ...narrowed, definitions: [...narrowed.definitions, ...parse(scalars.join('\n') || 'scalar None').definitions] };
}
