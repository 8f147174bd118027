/** JSON whose whole numbers keep all digits: those beyond 2^53, such as ids, are bigints. */
const MANY_DIGITS = /\d{16}/;
const TOKEN = /"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?/gi;
const MARK = '\ue000whole:';

/** @throws SyntaxError */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (!MANY_DIGITS.test(text)) return value;
  const marked = withMarks(text);
  if (marked === undefined) return value;
  return JSON.parse(marked, (_, each: unknown) =>
    typeof each === 'string' && each.startsWith(MARK) && /^-?\d+$/.test(each.slice(MARK.length)) ? BigInt(each.slice(MARK.length)) : each,
  );
}

/** The text with such numbers as marked strings; undefined when it has none. */
function withMarks(text: string): string | undefined {
  const pieces: string[] = [];
  let from = 0;
  TOKEN.lastIndex = 0;
  for (let found = TOKEN.exec(text); found; found = TOKEN.exec(text)) {
    const [token] = found;
    if (token === '"') TOKEN.lastIndex = endOfString(text, found.index + 1);
    else if (/^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token))) {
      pieces.push(text.slice(from, found.index), JSON.stringify(MARK + token));
      from = TOKEN.lastIndex;
    }
  }
  return pieces.length === 0 ? undefined : pieces.join('') + text.slice(from);
}

/** Behind the quote that ends a string; its quotes have an odd number of backslashes in front. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === '\\') slashes++;
    if (slashes % 2 === 0) return end + 1;
  }
  return text.length;
}
