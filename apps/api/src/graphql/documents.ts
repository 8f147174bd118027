/** Operations that were parsed and validated lately, by their text: whoever sends one of them again is not charged for it again. */
import type { DocumentNode } from 'graphql';

const MAX_DOCUMENTS = 500;
const MAX_CHARACTERS = 8_192;

export class Documents {
  private readonly known = new Map<string, DocumentNode>();

  find(source: string): DocumentNode | undefined {
    const document = this.known.get(source);
    if (document) this.put(source, document);
    return document;
  }

  /** Keeps a valid document. The one that was not used for the longest time makes room. */
  keep(source: string, document: DocumentNode): void {
    if (source.length <= MAX_CHARACTERS) this.put(source, document);
  }

  private put(source: string, document: DocumentNode): void {
    this.known.delete(source);
    const oldest = this.known.size >= MAX_DOCUMENTS ? this.known.keys().next().value : undefined;
    if (oldest !== undefined) this.known.delete(oldest);
    this.known.set(source, document);
  }
}
