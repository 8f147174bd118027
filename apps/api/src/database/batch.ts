/**
 * One statement for many of the same question: what is asked in one turn of the event loop, by any request, is asked of the database
 * together. Nothing is kept afterwards, so an answer is never older than its question.
 */
const MOST_KEYS = 100;

export class Batch<Key, Row> {
  private waiting: { key: Key; resolve: (rows: Row[]) => void; reject: (error: unknown) => void }[] = [];

  /**
   * @param read rows of at most so many keys in any order
   * @param sameKey a text for a key, and for the key that a row belongs to
   */
  constructor(
    private readonly read: (keys: readonly Key[]) => Promise<readonly Row[]>,
    private readonly sameKey: { ofKey: (key: Key) => string; ofRow: (row: Row) => string },
    private readonly mostKeys = MOST_KEYS,
  ) {}

  load(key: Key): Promise<Row[]> {
    if (this.waiting.length === 0) setImmediate(() => this.flush());
    return new Promise((resolve, reject) => this.waiting.push({ key, resolve, reject }));
  }

  private flush(): void {
    const all = this.waiting;
    this.waiting = [];
    for (let from = 0; from < all.length; from += this.mostKeys) void this.answer(all.slice(from, from + this.mostKeys));
  }

  private async answer(asked: typeof this.waiting): Promise<void> {
    try {
      const keys = new Map(asked.map(({ key }) => [this.sameKey.ofKey(key), key]));
      const found = new Map<string, Row[]>();
      for (const row of await this.read([...keys.values()])) {
        const text = this.sameKey.ofRow(row);
        const rows = found.get(text);
        if (rows) rows.push(row);
        else found.set(text, [row]);
      }
      for (const { key, resolve } of asked) resolve([...(found.get(this.sameKey.ofKey(key)) ?? [])]);
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
}
