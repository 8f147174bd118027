/** Versions of the values that all replicas have in common, and which of them all processes have. */

/** `begins`: the first weights of a model. `takes over`: they are on the way from the first process. */
export type Pending = 'begins' | 'takes over' | 'set';

export class AgreedVersion {
  private version = 0;
  private agreed = -1;
  /** What is in hand beside steps and predictions. */
  private inHand: 'freezes' | 'takes over' | undefined;

  get number(): number {
    return this.version;
  }

  get isAgreed(): boolean {
    return this.agreed === this.version;
  }

  touch(): void {
    this.version++;
  }

  agree(): void {
    this.agreed = ++this.version;
  }

  during(what: 'freezes' | 'takes over', operation: () => void): void {
    this.inHand = what;
    try {
      operation();
    } finally {
      this.inHand = undefined;
    }
  }

  /**
   * Weights that were set and that not all have from the first process yet.
   * @param isDone the operation in hand: with it what was set before, but for what is frozen
   */
  pending(isDone: boolean): Pending | undefined {
    if (this.isAgreed || (isDone && this.inHand !== 'freezes')) return undefined;
    if (this.agreed < 0) return 'begins';
    return this.inHand === 'takes over' ? 'takes over' : 'set';
  }

  /** The same values lie elsewhere. */
  moved(isDone: boolean): void {
    if (this.pending(isDone) === undefined) this.agree();
    else this.touch();
  }
}
