/**
 * State machines as data. A machine owns a `StateTable`; every handler enters through `take(row)`, which checks that the
 * row is allowed in the present state, counts it (the tests and the simulator print which rows they never saw) and moves.
 * docs/protocol-tables.md is printed from the same rows, and a test compares the two.
 */
export interface StateRow<State extends string> {
  /** States in which the event may come; 'any' for all. */
  readonly from: readonly State[] | 'any';
  readonly event: string;
  /** What the machine does, in words. */
  readonly does: string;
  /** The state it may move to; '–' when it stays. */
  readonly next: readonly State[] | '–';
}

export type StateRows<State extends string> = Readonly<Record<string, StateRow<State>>>;

export class StateTable<State extends string, Rows extends StateRows<State>> {
  /** How often each row was taken. */
  readonly taken = new Map<keyof Rows, number>();

  constructor(
    readonly name: string,
    readonly rows: Rows,
    private current: State,
  ) {}

  get state(): State {
    return this.current;
  }

  /** True if the row may be taken now. */
  allows(row: keyof Rows): boolean {
    const { from } = this.rows[row]!;
    return from === 'any' || from.includes(this.current);
  }

  /**
   * Takes a row, moving to `next` (which must be one that the row names).
   * @throws Error when the machine is in a state that the row does not name: a broken invariant, never a user's mistake.
   */
  take(row: keyof Rows, next?: State): void {
    const definition = this.rows[row]!;
    if (!this.allows(row)) throw new Error(`${this.name}: '${String(row)}' is not allowed in state ${this.current}`);
    if (next !== undefined && next !== this.current) {
      if (definition.next === '–' || !definition.next.includes(next)) {
        throw new Error(`${this.name}: '${String(row)}' cannot move from ${this.current} to ${next}`);
      }
      this.current = next;
    }
    this.taken.set(row, (this.taken.get(row) ?? 0) + 1);
  }
}
