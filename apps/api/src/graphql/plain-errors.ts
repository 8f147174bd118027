/**
 * What graphql-js says about the variables of a request, in plain words with the path of the field. Its own texts name types of the
 * schema and repeat the whole value; here each is one short sentence, and what is not known stays as it was.
 */
/* oxlint-disable messages/decide-nothing -- graphql-js gives these errors no code */
import { RUN_MOVES } from '@paceline/control-plane';
import { closest } from '@paceline/spec';

export interface PlainError {
  /** In the words of the input: `spec.globalBatch`. */
  readonly path: string;
  readonly message: string;
}

/** By the name of the type: every enum that can be given. A test holds this to the schema. */
export const INPUT_ENUMS: Readonly<Record<string, readonly string[]>> = { RunStatus: Object.keys(RUN_MOVES) };

const quoted = (text: string): string => JSON.stringify(text.slice(0, 60));

const RULES: readonly (readonly [pattern: RegExp, say: (match: RegExpExecArray) => string])[] = [
  [/^Int cannot represent non 32-bit signed integer value: /, () => 'must be a whole number from -2147483648 to 2147483647'],
  [/^Int cannot represent non-integer value: /, () => 'must be a whole number'],
  [/^Float cannot represent non numeric value: /, () => 'must be a number'],
  [/^String cannot represent a non string value: /, () => 'must be a text'],
  [/^Boolean cannot represent a non boolean value: /, () => 'must be true or false'],
  [/^ID cannot represent value: /, () => 'must be an id'],
  [/^Value "(.*)" does not exist in "(\w+)" enum/s, ([, value, type]) => unknownValue(value!, type!)],
  [/^Enum "(\w+)" cannot represent non-string value: /, ([, type]) => `must be ${listed(type!)}`],
  [/^Field "(.*)" is not defined by type "\w+"/s, ([, name]) => `${quoted(name!)} is an unknown field`],
  [/^Field "(\w+)" of required type "[^"]*" was not provided/, ([, name]) => `${name} is missing`],
  [/^Expected non-nullable type "[^"]*" not to be null/, () => 'must not be null'],
  [/^Expected type "\w+" to be an object/, () => 'must be an object'],
];

const listed = (type: string): string => (INPUT_ENUMS[type] ? `one of ${INPUT_ENUMS[type].join(', ')}` : `a value of ${type}`);

function unknownValue(value: string, type: string): string {
  const near = closest(value, INPUT_ENUMS[type] ?? []);
  return `must be ${listed(type)}, not ${quoted(value)}${near === undefined ? '' : `; did you mean ${near}?`}`;
}

/** @param message as graphql-js made it @returns undefined when it is about something else than the value of a variable */
export function plainVariableError(message: string): PlainError | undefined {
  const missing = /^Variable "\$(\w+)" of (?:required|non-null) type "[^"]*" (?:was not provided|must not be null)/.exec(message);
  if (missing) return { path: missing[1]!, message: 'is missing' };
  // The value stands between, and may hold anything: the last reason that is known is the one that graphql-js gave.
  const start = /^Variable "\$(\w+)" got invalid value /.exec(message);
  if (!start) return undefined;
  for (const [pattern, say] of RULES) {
    const at = message.search(new RegExp(`; ${pattern.source.slice(1)}`, pattern.flags));
    const match = at < 0 ? null : pattern.exec(message.slice(at + 2));
    if (match) return { path: pathOf(message.slice(0, at), start[1]!), message: say(match) };
  }
  return { path: start[1]!, message: 'has a wrong value' };
}

/** `... at "spec.optimizer.learningRate"`, `at "status[0]"`. */
function pathOf(before: string, variable: string): string {
  const [, path] = / at "([\w.[\]]{1,300})"$/.exec(before) ?? [];
  return (path ?? variable).replaceAll(/\[(\d+)\]/g, '.$1');
}
