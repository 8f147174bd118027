/**
 * Writes the loops over parameters as AssemblyScript, from formulas (formulas.mjs) that say what happens to one element: four lanes at a time, then
 * the same formula in scalars for what is left. Every operation of a formula becomes one IEEE single-precision operation in its order, so lanes, tail
 * and Math.fround (src/references.ts) give the same bits.
 *
 * A formula is parsed as TypeScript. The name of an array stands for its element: to read it is a load, to assign it a store. Comparisons of
 * elements select lanes; a condition that is a parameter holds for all of them.
 */
import ts from 'typescript';
import { FORMULAS } from './formulas.mjs';

const OPERATIONS = { '+': 'add', '-': 'sub', '*': 'mul', '/': 'div', '<': 'lt', '>': 'gt' };
/** pmin and pmax are one instruction each where min and max are seven. */
const SCALAR_NAMES = { pmin: 'min', pmax: 'max' };
const LANE_BYTES = 16;
const Kind = ts.SyntaxKind;

/** Writes statements and expressions: on the lanes at `offset`, or on scalars where there is none. */
class Writer {
  constructor(arrays, scalars, offset) {
    Object.assign(this, { arrays, scalars, isVector: offset !== undefined, offset: offset ? `, ${offset}` : '' });
  }

  statement(node) {
    if (node.kind === Kind.VariableStatement) {
      const [{ name, initializer }] = node.declarationList.declarations;
      return `${node.declarationList.flags & ts.NodeFlags.Const ? 'const' : 'let'} ${name.text}${this.isVector ? '' : ': f32'} = ${this.write(initializer)};`;
    }
    if (node.kind === Kind.IfStatement)
      return `if (${node.expression.text}) {\n${node.thenStatement.statements.map((one) => this.statement(one)).join('\n')}\n}`;
    const { left, right } = node.expression;
    if (!this.arrays.includes(left.text)) return `${left.text} = ${this.write(right)};`;
    return this.isVector
      ? `v128.store(${left.text}, ${this.write(right)}${this.offset});`
      : `store<f32>(${left.text}, ${this.write(right)});`;
  }

  write(node) {
    const { isVector } = this;
    switch (node.kind) {
      case Kind.Identifier:
        if (this.arrays.includes(node.text)) return isVector ? `v128.load(${node.text}${this.offset})` : `load<f32>(${node.text})`;
        return isVector && this.scalars.includes(node.text) ? `${node.text}Lanes` : node.text;
      case Kind.NumericLiteral:
        return isVector ? `f32x4.splat(${node.text})` : `<f32>${node.text}`;
      case Kind.ParenthesizedExpression:
        return this.write(node.expression);
      case Kind.BinaryExpression: {
        const [sign, left, right] = [node.operatorToken.getText(), this.write(node.left), this.write(node.right)];
        return isVector ? `f32x4.${OPERATIONS[sign]}(${left}, ${right})` : `(${left} ${sign} ${right})`;
      }
      case Kind.CallExpression: {
        const [name, inputs] = [node.expression.text, node.arguments.map((one) => this.write(one)).join(', ')];
        if (name === 'normal') return isVector ? `normalLanes(${inputs})` : `normal(${inputs})`;
        return isVector ? `f32x4.${name}(${inputs})` : `${SCALAR_NAMES[name] ?? name}<f32>(${inputs})`;
      }
      case Kind.ConditionalExpression: {
        const [condition, yes, no] = [node.condition, node.whenTrue, node.whenFalse].map((one) => this.write(one));
        const isOfElements = node.condition.kind === Kind.BinaryExpression;
        return isVector && isOfElements ? `v128.bitselect(${yes}, ${no}, ${condition})` : `(${condition} ? ${yes} : ${no})`;
      }
      default:
        throw new Error(`formulas have no ${Kind[node.kind]}: ${node.getText()}`);
    }
  }
}

function kernel(name, { arrays, parameters = [], derived = {}, unrolled = 1, each }) {
  const { statements } = ts.createSourceFile(`${name}.ts`, each, ts.ScriptTarget.ES2023, true);
  const typed = parameters.map((one) => (one.includes(':') ? one : `${one}: f32`));
  const used = new Set(each.match(/\w+/g));
  const scalars = [...typed.filter((one) => one.endsWith('f32')).map((one) => one.split(':')[0]), ...Object.keys(derived)].filter((one) =>
    used.has(one),
  );
  const body = (offset) => `{ ${statements.map((one) => new Writer(arrays, scalars, offset).statement(one)).join('\n')} }`;
  const advance = (bytes) => arrays.map((one) => `${one} += ${bytes};`).join(' ');
  const lanes = 4 * unrolled;
  return `export function ${name}(${[...arrays.map((one) => `${one}: usize`), 'n: u32', ...typed].join(', ')}): void {
${Object.entries(derived)
  .map(([one, value]) => `const ${one} = ${value};`)
  .join('\n')}
${scalars.map((one) => `const ${one}Lanes = f32x4.splat(${one});`).join('\n')}
let lines = <usize>n >> ${Math.log2(lanes)};
while (lines) {
${Array.from({ length: unrolled }, (_, i) => body(i * LANE_BYTES)).join('\n')}
${advance(unrolled * LANE_BYTES)}
lines--;
}
const end = ${arrays.at(-1)} + ((<usize>n & ${lanes - 1}) << 2);
while (${arrays.at(-1)} < end) {
${body()}
${advance(4)}
}
}`;
}

/** 0 for numbers that are smaller in size than 2^-126. Compares bits: a comparison of such numbers may be slow. */
const NORMAL = `
@inline
function normalLanes(x: v128): v128 {
  return v128.andnot(x, i32x4.lt_s(v128.and(x, i32x4.splat(0x7fffffff)), i32x4.splat(0x00800000)));
}
@inline
function normal(x: f32): f32 {
  return (reinterpret<u32>(x) & 0x7fffffff) < 0x00800000 ? <f32>0 : x;
}
`;

/** The source of assembly/elementwise.ts, which exists only while the module is compiled. */
export const elementwiseKernels = () =>
  NORMAL +
  Object.entries(FORMULAS)
    .map(([name, formula]) => kernel(name, formula))
    .join('\n');
