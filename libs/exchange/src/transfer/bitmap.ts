/** One bit for each, from the lowest of the first byte on; base64. WELCOME says so which chunks a server has applied. */
export function bitmapOf(bits: readonly boolean[]): string {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  for (const [i, isSet] of bits.entries()) if (isSet) bytes[i >> 3]! |= 1 << (i & 7);
  return Buffer.from(bytes).toString('base64');
}

/** The bits of `bitmapOf`; those beyond its end are not set. */
export function bitsOf(bitmap: string): (i: number) => boolean {
  const bytes = Buffer.from(bitmap, 'base64');
  return (i) => ((bytes[i >> 3] ?? 0) & (1 << (i & 7))) !== 0;
}
