/** "Did you mean": the name that was probably meant, for messages to people. */

/**
 * Edit distance with swapped neighbours (optimal string alignment), up to `most`; beyond it any larger number.
 * Both texts are short names; longer ones are not compared.
 */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let [beforeLast, last] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      row[j] = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], beforeLast[j - 2]! + 1);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length]!;
}

const MAX_COMPARED_CHARACTERS = 40;

/** The one of `names` that is a slip of the keyboard away from what was given, in any case; a beginning of one counts too. */
export function closest(given: string, names: readonly string[]): string | undefined {
  const text = given.toLowerCase();
  if (text.length < 2 || text.length > MAX_COMPARED_CHARACTERS) return undefined;
  const most = Math.max(1, Math.floor(text.length / 3));
  const ranked = names
    .map((name) => ({ name, far: distance(text, name.toLowerCase(), most) }))
    .filter(({ far }) => far <= most)
    .sort((a, b) => a.far - b.far);
  if (ranked[0]) return ranked[0].name;
  return text.length < 3 ? undefined : names.find((name) => name.toLowerCase().startsWith(text) || text.startsWith(name.toLowerCase()));
}
