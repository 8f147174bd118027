/**
 * What the api has of a form already: an import that was refused, or whose answer was lost, is asked for again without another upload, and under the
 * same key as long as it is the same import.
 */
import { newIdempotencyKey } from '@paceline/client';

export class SentFiles {
  readonly #ids = new Map<File, string>();
  #asked: { readonly text: string; readonly key: string } | undefined;

  /** @param upload only for a file that is not there yet; gives its id */
  async idOf(file: File, upload: () => Promise<string>): Promise<string> {
    const id = this.#ids.get(file) ?? (await upload());
    this.#ids.set(file, id);
    return id;
  }

  /** @param request all that the import is asked for with */
  keyOf(request: unknown): string {
    const text = JSON.stringify(request);
    if (this.#asked?.text !== text) this.#asked = { text, key: newIdempotencyKey() };
    return this.#asked.key;
  }

  /** Uploads that were imported, or are gone, are of no more use. */
  forget(): void {
    this.#ids.clear();
    this.#asked = undefined;
  }
}
