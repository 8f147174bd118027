/**
 * The upper one where their number is even.
 * @param {readonly number[]} values
 */
export function median(values) {
  const middle = [...values].sort((a, b) => a - b)[values.length >> 1];
  if (middle === undefined) throw new Error('nothing was measured');
  return middle;
}
