/** Seeded randomness of the simulator: sfc32, small and fast. It decides timing and faults, never what a machine computes. */
export class Random {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(seed: number, stream = 0) {
    this.a = seed | 0;
    this.b = Math.floor(seed / 2 ** 32) ^ Math.imul(stream, 0x9e3779b1);
    this.c = 0x5eed ^ stream;
    for (let i = 0; i < 12; i++) this.next();
  }

  /** A uint32. */
  next(): number {
    const sum = (((this.a + this.b) | 0) + this.counter) | 0;
    this.counter = (this.counter + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = ((this.c << 21) | (this.c >>> 11)) + sum;
    this.c |= 0;
    return sum >>> 0;
  }

  /** 0 ≤ x < 1. */
  float(): number {
    return this.next() / 2 ** 32;
  }

  /** from ≤ x < to. */
  between(from: number, to: number): number {
    return from + this.float() * (to - from);
  }

  /** A whole number, from ≤ x ≤ to. */
  int(from: number, to: number): number {
    return from + Math.floor(this.float() * (to - from + 1));
  }

  chance(probability: number): boolean {
    return this.float() < probability;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.int(0, from.length - 1)]!;
  }
}
