/** How the tables are written that a command reads. */
import { Option } from 'commander';

/** As \t or tab, which a shell takes more easily than the character. */
const asCharacter = (text: string): string => (/^(?:tab|\\t)$/i.test(text) ? '\t' : text);

export const decimalOption = (): Option =>
  new Option('--decimal <sign>', 'the sign in front of decimals, where thousands are separated or the sign is a comma').choices(['.', ',']);

export const delimiterOption = (): Option =>
  new Option('--delimiter <character>', 'CSV: what separates columns, when it is not found by itself').argParser(asCharacter);
