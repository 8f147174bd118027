/** What the tidy tests read from the syntax of a file: imports, function lengths, swallowed errors. No type information. */
import { dirname, join, posix } from 'node:path';
import { existsSync } from 'node:fs';
import ts from 'typescript';
import { repositoryRoot, textOf } from './tree.js';

const parsed = new Map<string, ts.SourceFile>();

export function syntaxOf(path: string): ts.SourceFile {
  let file = parsed.get(path);
  if (!file) {
    file = ts.createSourceFile(path, textOf(path), ts.ScriptTarget.ES2023, true, path.endsWith('x') ? ts.ScriptKind.TSX : undefined);
    parsed.set(path, file);
  }
  return file;
}

function visit(node: ts.Node, see: (node: ts.Node) => void): void {
  see(node);
  ts.forEachChild(node, (child) => visit(child, see));
}

const lineOf = (file: ts.SourceFile, position: number): number => file.getLineAndCharacterOfPosition(position).line + 1;

function isErased({ importClause }: ts.ImportDeclaration): boolean {
  if (!importClause) return false;
  if (importClause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  const bindings = importClause.namedBindings;
  return (
    !importClause.name && bindings !== undefined && ts.isNamedImports(bindings) && bindings.elements.every((element) => element.isTypeOnly)
  );
}

export interface Import {
  readonly specifier: string;
  readonly line: number;
  /** `import type`: gone before anything runs. */
  readonly erased: boolean;
}

/** Static and dynamic imports and re-exports, in order. */
export function importsOf(path: string): Import[] {
  const file = syntaxOf(path);
  const found: Import[] = [];
  const add = (node: ts.Expression | undefined, erased = false): void => {
    if (node && ts.isStringLiteralLike(node)) found.push({ specifier: node.text, line: lineOf(file, node.getStart()), erased });
  };
  visit(file, (node) => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, isErased(node));
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal as ts.Expression, true);
    else if (ts.isCallExpression(node) && /^(require|require\.resolve|import\.meta\.resolve)$/.test(node.expression.getText()))
      add(node.arguments[0]);
  });
  return found;
}

/** The file of ours that an import means, or undefined when it is none. */
export function targetOf(path: string, specifier: string): string | undefined {
  const own = /^@paceline\/([^/]+)(?:\/([a-z-]+))?$/.exec(specifier);
  if (own) return `libs/${own[1]}/src/${own[2] ?? 'index'}.ts`;
  if (!specifier.startsWith('.')) return undefined;
  const plain = posix.join(dirname(path), specifier);
  return [plain.replace(/\.js$/, '.ts'), plain.replace(/\.jsx?$/, '.tsx'), plain].find((candidate) =>
    existsSync(join(repositoryRoot, candidate)),
  );
}

export interface FunctionLength {
  readonly place: string;
  readonly name: string;
  /** From its first to its last line, comments and blank lines included. */
  readonly lines: number;
}

export function functionsOf(path: string): FunctionLength[] {
  const file = syntaxOf(path);
  const found: FunctionLength[] = [];
  visit(file, (node) => {
    if (!ts.isFunctionLike(node) || !('body' in node) || !node.body) return;
    const first = lineOf(file, node.getStart());
    const name = node.name?.getText() ?? (ts.isVariableDeclaration(node.parent) ? node.parent.name.getText() : '(arrow)');
    found.push({ place: `${path}:${first}`, name, lines: lineOf(file, node.getEnd()) - first + 1 });
  });
  return found;
}

const isNothing = (node: ts.Node): boolean =>
  (ts.isBlock(node) && node.statements.length === 0) ||
  (ts.isIdentifier(node) && node.text === 'undefined') ||
  node.kind === ts.SyntaxKind.NullKeyword ||
  (ts.isVoidExpression(node) && ts.isNumericLiteral(node.expression));

/** Handlers that drop an error, `catch {}` and `.catch(() => undefined)`, without a comment beside or above them saying why. */
export function swallowedErrors(path: string): string[] {
  const file = syntaxOf(path);
  const lines = textOf(path).split('\n');
  const explained = (node: ts.Node): boolean => {
    const first = lineOf(file, node.getStart());
    const last = lineOf(file, node.getEnd());
    return /\/\/|\/\*|^\s*\*/.test(lines[first - 2] ?? '') || lines.slice(first - 1, last).some((line) => /\/\/ |\/\*/.test(line));
  };
  const found: string[] = [];
  visit(file, (node) => {
    const dropped =
      (ts.isCatchClause(node) && node.block.statements.length === 0) ||
      (ts.isCallExpression(node) &&
        ts.isPropertyAccessExpression(node.expression) &&
        node.expression.name.text === 'catch' &&
        node.arguments.length === 1 &&
        ts.isArrowFunction(node.arguments[0]!) &&
        isNothing(node.arguments[0].body));
    const handler = ts.isCallExpression(node) ? node.arguments[0]! : node;
    if (dropped && !explained(handler)) found.push(`${path}:${lineOf(file, handler.getStart())}`);
  });
  return found;
}

/** Groups of files that import each other, when they run or also by types (strongly connected components, Tarjan 1972). */
export function cyclesAmong(paths: readonly string[], { withTypes = false } = {}): string[][] {
  const edges = new Map(
    paths.map((path) => [
      path,
      importsOf(path).flatMap(({ specifier, erased }) => (erased && !withTypes ? [] : (targetOf(path, specifier) ?? []))),
    ]),
  );
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const connect = (path: string): void => {
    index.set(path, index.size);
    low.set(path, index.get(path)!);
    stack.push(path);
    for (const next of edges.get(path) ?? []) {
      if (!index.has(next)) connect(next);
      if (stack.includes(next)) low.set(path, Math.min(low.get(path)!, low.get(next)!));
    }
    if (low.get(path) !== index.get(path)) return;
    const group = stack.splice(stack.indexOf(path));
    if (group.length > 1 || (edges.get(path) ?? []).includes(path)) cycles.push(group);
  };
  for (const path of paths) if (!index.has(path)) connect(path);
  return cycles;
}
