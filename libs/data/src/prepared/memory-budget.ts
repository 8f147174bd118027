/** Bytes that datasets may hold in memory, counted for all threads that share the buffer. */
export const DEFAULT_MEMORY_BYTES = 1 << 30;

export class MemoryBudget {
  private readonly used: BigInt64Array;

  /** @param counter 8 bytes, posted to the other threads of a process that share the budget */
  constructor(
    readonly bytes: number = DEFAULT_MEMORY_BYTES,
    readonly counter: SharedArrayBuffer = new SharedArrayBuffer(8),
  ) {
    this.used = new BigInt64Array(counter);
  }

  /** Takes the bytes unless they are more than what is left. */
  take(bytes: number): boolean {
    const amount = BigInt(Math.ceil(bytes));
    const before = Atomics.add(this.used, 0, amount);
    if (before + amount <= BigInt(this.bytes)) return true;
    Atomics.sub(this.used, 0, amount);
    return false;
  }

  giveBack(bytes: number): void {
    Atomics.sub(this.used, 0, BigInt(Math.ceil(bytes)));
  }

  get usedBytes(): number {
    return Number(Atomics.load(this.used, 0));
  }
}
