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
