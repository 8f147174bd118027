import type { Ask, Sha256 } from './platform.js';

export const ask: Ask = async (address, { body, ...question }) => {
  const whole = body === undefined || typeof body === 'string' || body instanceof Uint8Array ? body : await collect(body);
  const asked = Object.assign(
    { credentials: 'omit', redirect: 'error', cache: 'no-store' },
    question,
    whole === undefined ? {} : { body: whole },
  );
  const response = await fetch(address, asked as RequestInit);
  return { status: response.status, header: (name) => response.headers.get(name) ?? undefined, body: partsOf(response) };
};

/** Needs a page in a secure context, as crypto.subtle does. */
export const sha256: Sha256 = async (content) => {
  const bytes = content instanceof Uint8Array ? content : await collect(content);
  const digest = await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
};

/** Not every browser can iterate over a stream. */
async function* partsOf({ body }: Response): AsyncGenerator<Uint8Array, void, void> {
  const reader = body?.getReader();
  if (!reader) return;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value as Uint8Array;
  } finally {
    await reader.cancel();
  }
}

async function collect(parts: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array<ArrayBuffer>[] = [];
  for await (const part of parts) all.push(part as Uint8Array<ArrayBuffer>);
  return new Uint8Array(await new Blob(all).arrayBuffer());
}
