/**
 * Answers to queries with the tags that the api gave them. A query that is asked again is sent with its tag; as long as nothing has changed the
 * api answers without a body, and the answer is the same object as before, so nothing is drawn again.
 */
const MAX_ANSWERS = 16;

interface Held {
  readonly tag: string;
  readonly data: unknown;
}

export class HeldAnswers {
  private readonly answers = new Map<string, Held>();

  of(question: string): Held | undefined {
    return this.answers.get(question);
  }

  /** @param tag undefined when the api gave none */
  hold(question: string, tag: string | undefined, data: unknown): void {
    this.answers.delete(question);
    if (tag === undefined) return;
    this.answers.set(question, { tag, data });
    for (const oldest of this.answers.keys()) {
      if (this.answers.size <= MAX_ANSWERS) return;
      this.answers.delete(oldest);
    }
  }
}
