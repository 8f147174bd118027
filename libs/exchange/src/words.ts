/** Numbers as people read them, for events and reasons. */

/** `1 worker`, `2 workers`. */
export const counted = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`;

/** `1.8 MiB`; below 1 KiB in bytes. */
export function sizeText(bytes: number): string {
  for (const [size, unit] of [
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
  ] as const) {
    if (bytes >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  }
  return counted(bytes, 'byte');
}
