/** How dark the cells of a confusion matrix are, in percent of their colour. */

/** Text stays readable on it. */
const MOST = 42;
/** A single mistake among thousands is still to be seen. */
const LEAST = 6;

/** By the part of the row: the diagonal against a whole row, mistakes against the largest of them. */
export function cellTints(matrix: readonly (readonly number[])[]): number[][] {
  const shares = matrix.map((row) => {
    const all = row.reduce((sum, cell) => sum + cell, 0);
    return row.map((cell) => (all > 0 ? cell / all : 0));
  });
  const worst = Math.max(0, ...shares.flatMap((row, truth) => row.filter((_, prediction) => prediction !== truth)));
  // Few mistakes are not to look like many: what is below a fifth of a row stays pale.
  const full = Math.max(0.2, worst);
  return shares.map((row, truth) =>
    row.map((share, prediction) => (share === 0 ? 0 : Math.round(LEAST + (MOST - LEAST) * (truth === prediction ? share : share / full)))),
  );
}
