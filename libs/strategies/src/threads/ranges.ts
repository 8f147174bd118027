/** 64 bytes: no two threads write to one line of the cache. */
const LINE_FLOATS = 16;
const floorTo = (step: number, value: number): number => Math.floor(value / step) * step;

/** Parts of a flat vector. */
export interface Range {
  readonly offset: number;
  readonly length: number;
  /** The weights in it do not decay, where those of others do. */
  readonly keepsWeight?: boolean | undefined;
}

/** Marks the variables whose weights do not decay. */
export const marked = <V extends Range & { readonly path: string }>(variables: readonly V[], undecayed: readonly string[]): Range[] => {
  const kept = new Set(undecayed);
  return variables.map(({ path, offset, length }) => Object.assign({ offset, length }, kept.has(path) && { keepsWeight: true }));
};

/** The parts of a chunk that lie in the given variables, neighbours joined that are alike. */
export function joined(chunk: Range, variables: readonly Range[]): Range[] {
  const ranges: { offset: number; length: number; keepsWeight?: true }[] = [];
  const end = chunk.offset + chunk.length;
  for (const { offset, length, keepsWeight = false } of variables) {
    const [from, to] = [Math.max(offset, chunk.offset), Math.min(offset + length, end)];
    if (from >= to) continue;
    const last = ranges.at(-1);
    if (last && last.offset + last.length === from && (last.keepsWeight ?? false) === keepsWeight) last.length = to - last.offset;
    else ranges.push(Object.assign({ offset: from, length: to - from }, keepsWeight && { keepsWeight }));
  }
  return ranges;
}

/** What of a chunk lies in a share of a range that `shares` threads divide evenly; undefined for nothing. */
export function shareOfChunk(chunk: Range, { offset, length }: Range, share: number, shares: number): Range | undefined {
  const border = (i: number): number => offset + (i === shares ? length : floorTo(LINE_FLOATS, (i * length) / shares));
  const [from, to] = [Math.max(border(share), chunk.offset), Math.min(border(share + 1), chunk.offset + chunk.length)];
  return share < shares && from < to ? { offset: from, length: to - from } : undefined;
}
