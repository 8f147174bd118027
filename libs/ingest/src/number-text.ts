/** Numbers as tables write them. Without a word about it 1,5 and 1,234 are texts: only who wrote them knows which of both is above a thousand. */
export const DECIMAL_SIGNS = ['.', ','] as const;
/** Said by the user: the sign in front of the decimals. The other one, a blank or an apostrophe may then stand between groups of three digits. */
export type DecimalSign = (typeof DECIMAL_SIGNS)[number];

const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const GROUPED: Readonly<Record<DecimalSign, RegExp>> = {
  '.': /^[+-]?\d{1,3}(?:[,'’ \u00a0\u202f]\d{3})+(?:\.\d*)?$/,
  ',': /^[+-]?\d{1,3}(?:[.'’ \u00a0\u202f]\d{3})+(?:,\d*)?$/,
};
const WITH_COMMA = /^[+-]?(?:\d+,?\d*|,\d+)(?:e[+-]?\d+)?$/i;

/** The number as every program reads it; undefined for what is none. */
export function plainNumber(given: string, decimal: DecimalSign | undefined): string | undefined {
  const text = given.trim();
  if (decimal === undefined || decimal === '.') {
    if (NUMBER.test(text)) return text;
  } else if (WITH_COMMA.test(text)) return text.replace(',', '.');
  if (decimal === undefined || !GROUPED[decimal].test(text)) return undefined;
  return text.replaceAll(decimal === '.' ? /[,'’ \u00a0\u202f]/g : /[.'’ \u00a0\u202f]/g, '').replace(',', '.');
}

export const isNumberText = (text: string, decimal?: DecimalSign): boolean => plainNumber(text, decimal) !== undefined;

/** Whether it is a number in some way of writing one. */
export const isNumberInAnyStyle = (text: string): boolean => DECIMAL_SIGNS.some((decimal) => isNumberText(text, decimal));

export const DECIMAL_HINT =
  'a number with a comma or with groups of digits is read with --decimal , (decimal comma) or --decimal . (decimal point)';
