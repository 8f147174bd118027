/** Control and format characters (terminal escapes, bidirectional overrides, zero width) that a name or message may have smuggled in. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const ANSI_SEQUENCE = new RegExp(String.raw`\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])`, 'gu');

/**
 * A text from the server as it may be shown: one line, nothing invisible, at most `maxCharacters`.
 * React writes it as text; this keeps it from reordering or hiding what stands around it.
 */
export function plainText(value: unknown, maxCharacters = 2000): string {
  if (typeof value !== 'string') return '';
  const line = value
    .replace(/[\r\n\t]+/g, ' ')
    .replace(ANSI_SEQUENCE, '')
    .replace(INVISIBLE, '')
    .trim();
  const characters = [...line];
  return characters.length > maxCharacters ? `${characters.slice(0, maxCharacters).join('')}…` : line;
}

/** The same with a capital first letter: a reason of the api may be written to stand behind a colon. */
export function sentence(value: unknown, maxCharacters?: number): string {
  const text = plainText(value, maxCharacters);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
