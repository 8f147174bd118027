/** How large a spec may be as it is stored: every job and every reader of the run carries it. */
import { LIMITS, type RunSpec, type SpecIssue } from '@paceline/spec';

/** @param spec with every default and vocabulary in it */
export function specSizeIssues(spec: RunSpec, limitBytes: number = LIMITS.storedSpecBytes): SpecIssue[] {
  const bytes = Buffer.byteLength(JSON.stringify(spec));
  if (bytes <= limitBytes) return [];
  const message = `the spec has ${bytes} bytes with its defaults and vocabularies; at most ${limitBytes} are stored: name fewer columns, or write a smaller vocabularySize at the text inputs`;
  return [{ path: 'features', message }];
}
