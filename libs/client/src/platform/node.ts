import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Ask, Sha256 } from './platform.js';

/** node:http and not `fetch`: 9 ms of a processor for the first request of a program, against 115. Redirects are not followed. */
export const ask: Ask = async (address, { body, headers, ...question }) => {
  const open = address.protocol === 'https:' ? (await import('node:https')).request : request;
  return new Promise((resolve, reject) => {
    const isWhole = typeof body === 'string' || body instanceof Uint8Array;
    const length = isWhole ? { 'content-length': String(Buffer.byteLength(body)) } : {};
    const asked = open(address, Object.assign({ headers: Object.assign({}, headers, length) }, question), (response) => {
      const header = (name: string): string | undefined => response.headers[name]?.toString();
      resolve({ status: response.statusCode ?? 0, header, body: response as AsyncIterable<Uint8Array> });
    });
    asked.once('error', reject);
    if (body === undefined || isWhole) asked.end(body);
    // An error of the source of the body ends the request.
    else void pipeline(body, asked).catch(reject);
  });
};

export const sha256: Sha256 = async (content) => {
  const hash = createHash('sha256');
  if (content instanceof Uint8Array) return hash.update(content).digest('hex');
  for await (const part of content) hash.update(part);
  return hash.digest('hex');
};
