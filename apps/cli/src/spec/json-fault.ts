/** Where a text stops being JSON. JSON.parse of Node 20 tells the place only for some faults, so the grammar of RFC 8259 is walked once more. */

const TOKEN =
  /[ \t\n\r]*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|$)/y;

export interface JsonFault {
  readonly offset: number;
  readonly message: string;
}

type Expectation = 'value' | 'value or ]' | 'name' | 'name or }' | 'colon' | 'comma' | 'end';
type Kind = 'punctuation' | 'string' | 'literal' | 'end';
interface Token {
  readonly kind: Kind;
  readonly text: string;
  readonly offset: number;
}

/** @returns the first fault, undefined for JSON */
export function jsonFault(text: string): JsonFault | undefined {
  // What may come next; nested objects and lists are a stack, not recursion, as the text is not trusted.
  const open: ('{' | '[')[] = [];
  let expects = 'value' as Expectation;
  let at = 0;
  for (;;) {
    const token = nextToken(text, at);
    if ('message' in token) return token;
    at = token.offset + token.text.length;
    const wrong = (expected: string): JsonFault => ({
      offset: token.offset,
      message:
        token.kind === 'end'
          ? `the text ends where ${expected} must stand`
          : `${token.text.slice(0, 20)} stands where ${expected} must stand`,
    });
    const afterValue = (): void => void (expects = open.length === 0 ? 'end' : 'comma');
    const close = (): void => {
      open.pop();
      afterValue();
    };
    if (expects === 'end') return token.kind === 'end' ? undefined : wrong('nothing');
    if (expects === 'colon') {
      if (token.text !== ':') return wrong('":"');
      expects = 'value';
    } else if (expects === 'comma') {
      const closer = open.at(-1) === '{' ? '}' : ']';
      if (token.text === closer) close();
      else if (token.text === ',') expects = open.at(-1) === '{' ? 'name' : 'value';
      else return wrong(`"," or "${closer}"`);
    } else if (expects === 'name' || expects === 'name or }') {
      if (expects === 'name or }' && token.text === '}') close();
      else if (token.kind === 'string') expects = 'colon';
      else return wrong('a name in double quotes');
    } else if (expects === 'value or ]' && token.text === ']') close();
    else if (token.text === '{' || token.text === '[') {
      open.push(token.text);
      expects = token.text === '{' ? 'name or }' : 'value or ]';
    } else if (token.kind === 'string' || token.kind === 'literal') afterValue();
    else return wrong('a value');
  }
}

function nextToken(text: string, at: number): Token | JsonFault {
  TOKEN.lastIndex = at;
  const match = TOKEN.exec(text);
  if (!match) {
    const offset = at + /^[ \t\n\r]*/.exec(text.slice(at))![0].length;
    const what =
      text[offset] === '"'
        ? 'a text that does not end, or holds a control character or an unknown escape'
        : `${JSON.stringify(/^[\w.+-]{1,20}|./su.exec(text.slice(offset))?.[0] ?? '')} is no JSON`;
    return { offset, message: what };
  }
  const [whole, punctuation, string, literal] = match;
  const value = punctuation ?? string ?? literal ?? '';
  const kind: Kind =
    punctuation !== undefined ? 'punctuation' : string !== undefined ? 'string' : literal !== undefined ? 'literal' : 'end';
  return { kind, text: value, offset: at + whole.length - value.length };
}
