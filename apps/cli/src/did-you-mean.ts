/** The known word that was probably meant. */

/** @returns undefined when none is near: at most a third of the letters differ, two at most for words up to six */
export function didYouMean(typed: string, known: readonly string[]): string | undefined {
  const given = typed.slice(0, 40).toLowerCase();
  const near = known
    .map((word) => ({ word, distance: distanceOf(given, word.toLowerCase()) }))
    .filter(({ word, distance }) => distance <= Math.max(1, Math.min(3, Math.ceil(Math.max(word.length, given.length) / 3))))
    .sort((a, b) => a.distance - b.distance);
  return near[0]?.word;
}

/** ` – did you mean adam?`, or nothing. */
export function suggestion(typed: string, known: readonly string[]): string {
  const meant = didYouMean(typed, known);
  return meant === undefined ? '' : ` – did you mean ${meant}?`;
}

/** Insertions, deletions, changes and swaps of neighbours (Damerau 1964, restricted). */
function distanceOf(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = rows[i - 1]![j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row[j] = Math.min(change, rows[i - 1]![j]! + 1, row[j - 1]! + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], rows[i - 2]![j - 2]! + 1);
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}
