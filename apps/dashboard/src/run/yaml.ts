/** JSON values as YAML in block style. Texts that could be read as something else are quoted as in JSON, which YAML reads too. */
export function toYaml(value: unknown): string {
  if (isEmpty(value) || !isNested(value)) return `${scalar(value)}\n`;
  return `${lines(value).join('\n')}\n`;
}

function lines(value: object): string[] {
  if (Array.isArray(value)) return value.flatMap((item) => behind('-', item));
  return Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .flatMap(([name, inner]) => behind(`${text(name)}:`, inner));
}

/** What follows a name or a dash: on its line, or indented below. */
function behind(start: string, value: unknown): string[] {
  if (!isNested(value) || isEmpty(value)) return [`${start} ${scalar(value)}`];
  const inner = lines(value).map((line) => `  ${line}`);
  return start === '-' ? [`- ${inner[0]!.trimStart()}`, ...inner.slice(1)] : [start, ...inner];
}

const isNested = (value: unknown): value is object => value !== null && typeof value === 'object';
const isEmpty = (value: unknown): boolean => isNested(value) && Object.keys(value).length === 0;

function scalar(value: unknown): string {
  if (typeof value === 'string') return text(value);
  // YAML 1.1 reads 1e-7 as a text: it wants a point in a number with an exponent.
  if (typeof value === 'number') return String(value).replace(/^(-?\d+)e/, '$1.0e');
  return JSON.stringify(value) ?? 'null';
}

/** A word that no version of YAML takes for a number, a truth value, nothing, or the beginning of something. */
const PLAIN = /^[A-Za-z][\w./-]*(?: [\w./-]+)*$/;
const SPECIAL = /^(?:true|false|yes|no|on|off|null|y|n|nan|inf)$/i;

const text = (value: string): string => (PLAIN.test(value) && !SPECIAL.test(value) ? value : quoted(value));

const quoted = (value: string): string => withoutHidden(JSON.stringify(value));

/** JSON that looks as what it is. */
export const visibleJson = (value: unknown): string => withoutHidden(JSON.stringify(value, null, 2));

/** JSON escapes control characters itself; format characters, which could reorder what is read, are escaped here. They stand in texts alone. */
const withoutHidden = (json: string): string =>
  json.replace(/[\p{Cf}\p{Zl}\p{Zp}\u0085]/gu, (found) =>
    [...Array(found.length).keys()].map((i) => `\\u${found.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''),
  );
