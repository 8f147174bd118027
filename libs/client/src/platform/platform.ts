/** What differs between Node and a browser. `#platform` (package.json) is one of its two implementations. */
export interface Question {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

export interface Reply {
  readonly status: number;
  header(name: string): string | undefined;
  readonly body: AsyncIterable<Uint8Array>;
}

export type Ask = (address: URL, question: Question) => Promise<Reply>;
/** In hexadecimal digits. */
export type Sha256 = (content: Uint8Array | AsyncIterable<Uint8Array>) => Promise<string>;
