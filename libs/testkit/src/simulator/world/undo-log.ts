/** Tables whose changes can be taken back: what a transaction needs that is rolled back, and a Redis that loses its last second. */
interface Change {
  readonly atMs: number;
  undo(): void;
}

export class UndoLog {
  private readonly changes: Change[] = [];

  /** @param keepMs how long a change can be taken back */
  constructor(
    private readonly nowMs: () => number,
    private readonly keepMs: number,
  ) {}

  add(undo: () => void): void {
    const atMs = this.nowMs();
    if (this.changes.length > 1_000 && this.changes[0]!.atMs < atMs - this.keepMs)
      this.changes.splice(
        0,
        this.changes.findIndex((change) => change.atMs >= atMs - this.keepMs),
      );
    this.changes.push({ atMs, undo });
  }

  /** Keeps all changes so far. */
  forget(): void {
    this.changes.length = 0;
  }

  /** @returns how many changes were taken back */
  undoAll(): number {
    return this.undoFrom(0);
  }

  /** Takes back every change made after that moment. @returns how many there were */
  undoSince(atMs: number): number {
    let mark = this.changes.length;
    while (mark > 0 && this.changes[mark - 1]!.atMs > atMs) mark--;
    return this.undoFrom(mark);
  }

  private undoFrom(mark: number): number {
    const undone = this.changes.splice(mark);
    for (const change of undone.reverse()) change.undo();
    return undone.length;
  }
}

/** Values are never changed in place. */
export class Table<K, V> {
  private map = new Map<K, V>();

  constructor(private readonly log: UndoLog) {}

  get(key: K): V | undefined {
    return this.map.get(key);
  }

  get size(): number {
    return this.map.size;
  }

  /** In no order that means anything. */
  values(): V[] {
    return [...this.map.values()];
  }

  set(key: K, value: V): void {
    const before = this.map.get(key);
    this.map.set(key, value);
    this.log.add(() => (before === undefined ? void this.map.delete(key) : void this.map.set(key, before)));
  }

  delete(key: K): boolean {
    const before = this.map.get(key);
    if (before === undefined) return false;
    this.map.delete(key);
    this.log.add(() => void this.map.set(key, before));
    return true;
  }

  clear(): void {
    const before = this.map;
    if (before.size === 0) return;
    this.map = new Map();
    this.log.add(() => (this.map = before));
  }
}
