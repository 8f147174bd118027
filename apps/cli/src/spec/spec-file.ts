/**
 * A run spec in a YAML or JSON file. Whatever is wrong is told with line and column: a text that is no YAML or JSON at once, a field that the
 * schema refuses by looking its path up in the document.
 */
import { readFileSync, statSync } from 'node:fs';
import { UserError } from '@paceline/runtime';
import { parse as parseJson, printParseErrorCode, type ParseError } from 'jsonc-parser';
import { isMap, LineCounter, parseDocument, type Document, type YAMLError } from 'yaml';
import { SpecError } from '../failure.js';
import { bytes } from '../terminal/format.js';

export interface SpecFile {
  readonly name: string;
  readonly value: Record<string, unknown>;
  /** `name:line:column` of a field, or of its nearest parent that is written there. */
  at(path: string): string | undefined;
}

const MAX_BYTES = 4 * 1024 * 1024;
/** Anchors used more often than this are an attempt to blow the document up. */
const MAX_ALIASES = 20;

/** @throws UserError SPEC_FILE_* or SpecError with line and column */
export function readSpecFile(file: string): SpecFile {
  const text = readText(file);
  if (file.endsWith('.json')) requireJson(file, text);
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, version: '1.2', schema: 'core', prettyErrors: false });
  const [first] = document.errors;
  if (first) {
    const issues = document.errors
      .slice(0, 5)
      .map((error) => ({ path: '(file)', message: yamlFault(error), at: place(file, lines, error.pos[0]) }));
    throw new SpecError(`${file} is not valid YAML.`, issues);
  }
  const value: unknown = toValue(file, document);
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new SpecError(`${file} holds no run spec.`, [
      { path: '(file)', message: 'must hold fields such as `model: mlp`', at: `${file}:1:1` },
    ]);
  }
  return { name: file, value: value as Record<string, unknown>, at: (path) => locate(file, document, lines, path) };
}

/** What people most often get wrong, in their words; the parser's for the rest. */
const YAML_FAULTS: Partial<Record<YAMLError['code'], string>> = {
  BAD_INDENT: 'this line is not indented as far as it must be, or a bracket above it is not closed',
  BLOCK_AS_IMPLICIT_KEY: 'two fields stand on one line: put the second on a line of its own, or quote the value',
  BLOCK_IN_FLOW: 'inside of {} and [] fields are written with commas, on as many lines as you like',
  DUPLICATE_KEY: 'this field is there twice',
  MISSING_CHAR: 'something is missing here: a colon after a name, a comma, or a closing bracket or quote',
  MULTILINE_IMPLICIT_KEY: 'this is no field: a colon after its name is missing',
  MULTIPLE_DOCS: 'a run spec is one document: nothing may stand after a line of ---',
  TAB_AS_INDENT: 'indentation is by spaces, not by tabs',
  UNEXPECTED_TOKEN: 'this does not belong here; a text with special characters is put in quotes',
};

const yamlFault = ({ code, message }: YAMLError): string => YAML_FAULTS[code] ?? message;

function readText(file: string): string {
  try {
    const stat = statSync(file);
    if (!stat.isFile()) throw new UserError('SPEC_FILE_UNREADABLE', `${file} is not a file.`, { exit: 'notFound' });
    if (stat.size > MAX_BYTES)
      throw new UserError('SPEC_FILE_TOO_LARGE', `${file} has ${bytes(stat.size)}; a run spec has at most ${bytes(MAX_BYTES)}.`, {
        exit: 'badSpec',
      });
    const text = readFileSync(file, 'utf8');
    return text.startsWith('\uFEFF') ? text.slice(1) : text;
  } catch (error) {
    if (error instanceof UserError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new UserError(
      'SPEC_FILE_UNREADABLE',
      code === 'ENOENT' ? `There is no file ${file}.` : `${file} cannot be read (${code ?? String(error)}).`,
      { exit: 'notFound', cause: error },
    );
  }
}

/** YAML accepts more than JSON does; a .json file must be JSON. */
function requireJson(file: string, text: string): void {
  const fault = jsonFault(text);
  if (!fault) return;
  const before = text.slice(0, fault.offset).split('\n');
  const at = `${file}:${before.length}:${before.at(-1)!.length + 1}`;
  throw new SpecError(`${file} is not valid JSON.`, [{ path: '(file)', message: fault.message, at }]);
}

/** What is wrong at the place of the first fault. */
const JSON_FAULTS: Readonly<Record<string, string>> = {
  ValueExpected: 'a value is missing here',
  PropertyNameExpected: 'a name in double quotes is missing here',
  ColonExpected: 'a colon is missing here',
  CommaExpected: 'a comma is missing here',
  CloseBraceExpected: 'a comma or a closing } is missing here',
  CloseBracketExpected: 'a comma or a closing ] is missing here',
  EndOfFileExpected: 'nothing may follow the value',
  InvalidCommentToken: 'JSON has no comments; a .yaml file may have some',
};

/** JSON.parse decides; where it refuses, jsonc-parser tells the place, which Node 20 does for some faults only. */
export function jsonFault(text: string): { readonly offset: number; readonly message: string } | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch {
    const errors: ParseError[] = [];
    try {
      parseJson(text, errors, { disallowComments: true });
    } catch {
      return { offset: text.length, message: 'too many brackets are open' }; // deeper than jsonc-parser can follow
    }
    const [first] = errors;
    return { offset: first?.offset ?? text.length, message: (first && JSON_FAULTS[printParseErrorCode(first.error)]) ?? 'this is no JSON' };
  }
}

function toValue(file: string, document: Document): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (error) {
    throw new SpecError(`${file} cannot be used.`, [{ path: '(file)', message: (error as Error).message, at: `${file}:1:1` }]);
  }
}

function locate(file: string, document: Document, lines: LineCounter, path: string): string | undefined {
  const keys = path.split('.').map((key) => (/^\d+$/.test(key) ? Number(key) : key));
  for (let length = keys.length; length > 0; length--) {
    const wanted = keys.slice(0, length);
    const parent = wanted.length === 1 ? document.contents : document.getIn(wanted.slice(0, -1), true);
    // The key itself is what people look for; its value may stand on the next line.
    const pair = isMap(parent)
      ? parent.items.find((item) => String((item.key as { value?: unknown } | null)?.value) === String(wanted.at(-1)))
      : undefined;
    const node = (pair?.key ?? (wanted.length > 0 ? document.getIn(wanted, true) : undefined)) as
      | { range?: [number, number, number] | null }
      | undefined;
    if (node?.range) return place(file, lines, node.range[0]);
  }
  return undefined;
}

function place(file: string, lines: LineCounter, offset: number): string {
  const { line, col } = lines.linePos(offset);
  return `${file}:${line}:${col}`;
}
