/** 64 bytes: no two threads write to one line of the cache. */
const LINE_FLOATS = 16;
const floorTo = (step: number, value: number): number => Math.floor(value / step) * step;

/** Parts of a flat vector. */
export interface Range {
  readonly offset: number;
  readonly length: number;
}

/** The parts of a chunk that lie in the given variables, neighbours joined. */
export function joined(chunk: Range, variables: readonly Range[]): Range[] {
  const ranges: { offset: number; length: number }[] = [];
  const end = chunk.offset + chunk.length;
  for (const { offset, length } of variables) {
    const [from, to] = [Math.max(offset, chunk.offset), Math.min(offset + length, end)];
    if (from >= to) continue;
    const last = ranges.at(-1);
    if (last && last.offset + last.length === from) last.length = to - last.offset;
    else ranges.push({ offset: from, length: to - from });
  }
  return ranges;
}

/** What of a chunk lies in a share of a range that `shares` threads divide evenly; undefined for nothing. */
export function shareOfChunk(chunk: Range, { offset, length }: Range, share: number, shares: number): Range | undefined {
  const border = (i: number): number => offset + (i === shares ? length : floorTo(LINE_FLOATS, (i * length) / shares));
  const [from, to] = [Math.max(border(share), chunk.offset), Math.min(border(share + 1), chunk.offset + chunk.length)];
  return share < shares && from < to ? { offset: from, length: to - from } : undefined;
}
