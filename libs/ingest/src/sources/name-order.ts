/**
 * The order of files by their names, the same on every machine: digits by the number that they write, so that station-10 follows station-2, all
 * else by code units.
 */
const PIECES = /\d+|\D+/g;
const isNumber = (piece: string): boolean => piece[0]! >= '0' && piece[0]! <= '9';
const byCodeUnits = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

export function inNameOrder(a: string, b: string): number {
  const [left, right] = [a.match(PIECES) ?? [], b.match(PIECES) ?? []];
  for (let i = 0; i < left.length && i < right.length; i++) {
    const [x, y] = [left[i]!, right[i]!];
    const order = isNumber(x) && isNumber(y) ? byNumber(x, y) : byCodeUnits(x, y);
    if (order !== 0) return order;
  }
  // Names of the same numbers, 1 and 01, differ by their zeros.
  return left.length - right.length || byCodeUnits(a, b);
}

/** However many digits there are. */
function byNumber(a: string, b: string): number {
  const [x, y] = [a.replace(/^0+/, ''), b.replace(/^0+/, '')];
  return x.length - y.length || byCodeUnits(x, y);
}
