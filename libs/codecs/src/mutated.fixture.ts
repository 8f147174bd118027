/** Encodings with mistakes in them, for tests: what a hostile or broken worker sends. */

/** mulberry32: the same mistakes each time. */
export function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Counts, distances, and the bits of float32: 0, −0, 1, 1e38, the largest, infinity, NaN, a denormal. */
const WORDS = [
  0, 1, 2, 127, 128, 0x80, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0x7e967699, 0x7f7fffff, 0x7f800000, 0xff800000,
  0x7fc00000, 0x00000001, 0xbf800000,
];

/** A copy with one to four mistakes: flipped bits, words that matter, bytes that are moved, doubled, cut off or put on. */
export function mutated(bytes: Uint8Array, random: (below: number) => number): Uint8Array {
  let out = bytes.slice();
  for (let left = 1 + random(4); left > 0 && out.length > 0; left--) {
    const at = random(out.length);
    switch (random(8)) {
      case 0:
      case 1:
        out[at]! ^= 1 << random(8);
        break;
      case 2:
        out[at] = random(256);
        break;
      case 3:
      case 4: {
        // Where numbers begin, as a rule.
        const word = random(2) === 0 ? 0 : at & ~3;
        if (word + 4 <= out.length) new DataView(out.buffer, out.byteOffset).setUint32(word, WORDS[random(WORDS.length)]!, true);
        break;
      }
      case 5:
        out.copyWithin(at, random(out.length), random(out.length + 1));
        break;
      case 6:
        out = out.slice(0, random(2) === 0 ? at : out.length - 1);
        break;
      default: {
        const longer = new Uint8Array(out.length + 1 + random(5));
        longer.set(out);
        longer.fill(random(256), out.length);
        out = longer;
      }
    }
  }
  return out;
}
