/**
 * Odd values for every kind of argument: mostly ones that get past the first check, as only those reach what lies behind it; forged
 * cursors of the right kind, numbers beyond 32 bits, U+0000 and halves of characters, lists of forty thousand, names of Object.prototype.
 */
import fc from 'fast-check';
import { isEnumType, isInputObjectType, isListType, isNonNullType, type GraphQLInputType } from 'graphql';

/** Of things that are there, so that arguments get past "there is no such thing"; filled in by the test. */
export const ids: string[] = [];

export const cursor = (...key: unknown[]): string => Buffer.from(JSON.stringify(key)).toString('base64url');
export const CURSORS = [
  cursor('runs', 1, 'a'.repeat(36)),
  cursor('runs', 999_999_999_999_999, '0190c5a5-0000-7000-8000-000000000000'),
  cursor('runs', 1, '-'.repeat(36)),
  cursor('runs', 1, '\0'),
  cursor('runs', '1e3', {}),
  cursor('events', '9999999999'),
  cursor('events', 2_147_483_648),
  cursor('events', -1),
  cursor('events', [1]),
  cursor('events'),
  cursor(),
];
const ODD_TEXTS = [
  ...CURSORS.slice(0, 3),
  '',
  ' ',
  '\0',
  '\ud800',
  'a\udfff\0b',
  '__proto__',
  'constructor',
  'toString',
  '%',
  '%00',
  '../..',
  '-1',
  '1e999',
  '2147483648',
  '9'.repeat(400),
  'x'.repeat(20_000),
  '\u001b[2J',
  '\'; DROP TABLE "Run"; --',
  '{}',
  '[]',
  'null',
  'active',
  'RUNNING',
  'loss',
  'mlp',
  '0190c5a5-0000-7000-8000-000000000000',
  '-'.repeat(36),
  'a'.repeat(36),
];
export const oddText = () => fc.oneof(fc.constantFrom(...ODD_TEXTS), fc.string({ unit: 'binary', maxLength: 60 }), fc.constantFrom(...ids));
const oddNumber = () =>
  fc.oneof(
    fc.constantFrom(0, -0, -1, 1, 2, 0.5, 2 ** 31 - 1, -(2 ** 31), 2 ** 31, 2 ** 53, 1e308, -1e308, 1e-320),
    fc.integer({ max: 300 }),
    fc.double(),
  );
/** A model that would train, with one odd thing in it: so the model check itself is reached. */
export function topology(): fc.Arbitrary<unknown> {
  const layers = (): Record<string, unknown>[] => [
    { class_name: 'InputLayer', name: 'in', config: { batch_input_shape: [null, 28, 28, 1] }, inbound_nodes: [] },
    { class_name: 'Conv2D', name: 'c', config: { filters: 2, kernel_size: 3, padding: 'same' }, inbound_nodes: [[['in', 0, 0, {}]]] },
    { class_name: 'Flatten', name: 'f', config: {}, inbound_nodes: [[['c', 0, 0, {}]]] },
    { class_name: 'Dense', name: 'd', config: { units: 10, activation: 'linear' }, inbound_nodes: [[['f', 0, 0, {}]]] },
  ];
  const keys = [
    'units',
    'activation',
    'batch_input_shape',
    'name',
    'kernel_regularizer',
    'kernel_initializer',
    'filters',
    'cell',
    'layer',
    'dtype',
    'data_format',
    'x',
  ];
  const place = fc.oneof(
    fc.tuple(fc.nat(3), fc.constantFrom(...keys)).map(([index, key]) => ({ index, at: 'config', key })),
    fc.tuple(fc.nat(3), fc.constantFrom('class_name', 'config', 'inbound_nodes', 'name')).map(([index, key]) => ({ index, at: '', key })),
    fc.constantFrom('input_layers', 'output_layers', 'layers', 'name').map((key) => ({ index: -1, at: '', key })),
  );
  const value = fc.oneof(
    oddJson(),
    oddText().map((text) => [text]),
    fc.constantFrom({ class_name: 'toString', config: {} }, { class_name: 'L1L2' }),
  );
  return fc.tuple(fc.constantFrom('Sequential', 'Functional'), place, value).map(([class_name, { index, at, key }, odd]) => {
    const config: Record<string, unknown> = { layers: layers(), input_layers: [['in', 0, 0]], output_layers: [['d', 0, 0]] };
    const holder =
      index < 0
        ? config
        : at === ''
          ? (config['layers'] as Record<string, unknown>[])[index]!
          : ((config['layers'] as Record<string, Record<string, unknown>>[])[index]!['config'] as Record<string, unknown>);
    holder[key] = odd;
    return { class_name, config };
  });
}
export const oddJson = (): fc.Arbitrary<unknown> =>
  fc.oneof(
    { maxDepth: 2, depthSize: 'small' },
    fc.constantFrom<unknown>(null, true, {}, [], [[]], JSON.parse('{"__proto__":{"x":1},"constructor":1}')),
    oddText(),
    oddNumber(),
    fc.array(fc.oneof(oddText(), oddNumber(), fc.constant(null)), { maxLength: 3 }),
    fc.constant(Array.from({ length: 40_000 }, () => 'RUNNING')),
    fc.dictionary(fc.oneof(oddText(), fc.constantFrom('name', 'rounds', 'servers')), fc.oneof(oddText(), oddNumber()), { maxKeys: 3 }),
  );

/** Mostly of the right kind, as only those get past the coercion of GraphQL; else anything. */
export function valueOf(type: GraphQLInputType, name: string): fc.Arbitrary<unknown> {
  if (isNonNullType(type)) return valueOf(type.ofType as GraphQLInputType, name);
  const anything = { weight: 1, arbitrary: oddJson() };
  if (isListType(type)) {
    const item = valueOf(type.ofType as GraphQLInputType, name);
    return fc.oneof({ weight: 8, arbitrary: fc.array(item, { maxLength: 4 }) }, anything);
  }
  if (isEnumType(type)) {
    const right = fc.constantFrom(...type.getValues().map((value) => value.name));
    return fc.oneof(
      { weight: 6, arbitrary: right },
      { weight: 1, arbitrary: fc.constant(Array.from({ length: 40_000 }, () => type.getValues()[0]!.name)) },
      anything,
    );
  }
  if (isInputObjectType(type)) {
    const fields = Object.fromEntries(Object.values(type.getFields()).map((field) => [field.name, valueOf(field.type, field.name)]));
    const required = Object.values(type.getFields()).filter((field) => isNonNullType(field.type));
    // Few fields at once: one wrong field hides the others.
    const some = fc
      .subarray(Object.keys(fields), { maxLength: Math.min(4, Object.keys(fields).length) })
      .chain((chosen) =>
        fc.record(Object.fromEntries([...new Set([...chosen, ...required.map((field) => field.name)])].map((key) => [key, fields[key]!]))),
      );
    return fc.oneof({ weight: 12, arbitrary: some }, anything);
  }
  const byScalar: Record<string, () => fc.Arbitrary<unknown>> = {
    Int: () =>
      fc.oneof(
        { weight: 3, arbitrary: fc.integer({ min: 0, max: 100 }) },
        fc.constantFrom(0, -1, 101, 2 ** 31 - 1, -(2 ** 31)),
        fc.integer(),
      ),
    Float: oddNumber,
    Boolean: () => fc.boolean(),
    ID: () => fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...ids) }, oddText()),
    String: () => (/after|before/.test(name) ? fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...CURSORS) }, oddText()) : oddText()),
    JSON: () => (/topology/i.test(name) ? topology() : oddJson()),
  };
  return fc.oneof({ weight: 8, arbitrary: (byScalar[type.name] ?? oddJson)() }, anything);
}
