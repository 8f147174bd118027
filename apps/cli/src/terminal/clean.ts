/**
 * Texts that come from the api were written by somebody else: a run's name could hold escape sequences that move the cursor, set the window's
 * title or turn text around. They are printed as text only.
 */

/** CSI, OSC, DCS and the two-character escapes, whole, so that no `[31m` is left over. */

const ESCAPE_SEQUENCES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|[ -/]*[0-~])|\u009b[0-?]*[ -/]*[@-~]/g;
/** Control and format characters (bidirectional overrides, zero width), and line and paragraph separators. */
const CONTROL = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** One line without control characters, at most `maxCharacters` long. */
export function clean(text: string, maxCharacters = 500): string {
  const plain = text
    .slice(0, maxCharacters * 4)
    .replace(ESCAPE_SEQUENCES, '')
    .replace(/[\r\n\t]+/g, ' ')
    .replace(CONTROL, '');
  return plain.length > maxCharacters ? `${plain.slice(0, maxCharacters - 1)}…` : plain;
}

/** The same for texts of several lines. */
export function cleanLines(text: string, maxCharacters = 20_000): string {
  return text
    .slice(0, maxCharacters)
    .split('\n')
    .map((line) => clean(line, 2000))
    .join('\n');
}
