/**
 * Files from https:// addresses. With policy server nothing but public addresses is reached: the rule is applied to the address that is connected to,
 * after the names are resolved, so neither a notation nor a DNS answer that changes gets past it; each redirect is checked like the first address.
 */
import { lookup as resolveName, type LookupAddress } from 'node:dns';
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { SplitName } from '@paceline/spec';
import { IngestError } from '../ingest-error.js';
import type { Access } from '../options.js';
import type { SourceContext, SourceFile } from './source-file.js';

const REDIRECTS_MAX = 5;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** What may be reached. Tests bring rules of their own, as nothing else is reachable for them. */
export interface Reach {
  readonly protocols: readonly string[];
  mayConnect(address: string): boolean;
  mayAsk(host: string): boolean;
  readonly resolve: (host: string, done: (error: Error | null, addresses: LookupAddress[]) => void) => void;
}

/** Unicast addresses of the public internet; none that stands for another one, such as ::ffff:127.0.0.1. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 0) return false;
  // A zone (fe80::1%eth0) names an interface of this machine.
  return !address.includes('%') && ipaddr.parse(address).range() === 'unicast';
}

/** `*.example.org` is every name below it. */
export function isAllowedHost(host: string, allowed: Access['allowedHosts']): boolean {
  if (allowed === undefined) return true;
  const name = host.toLowerCase().replace(/\.$/, '');
  return allowed.some((pattern) => {
    const wanted = pattern.toLowerCase();
    return wanted.startsWith('*.') ? name.endsWith(wanted.slice(1)) && name.length > wanted.length - 1 : name === wanted;
  });
}

const resolveAll: Reach['resolve'] = (host, done) => resolveName(host, { all: true }, done);

export function reachOf({ policy, access }: SourceContext['options']): Reach {
  if (policy === 'user') return { protocols: ['https:', 'http:'], mayConnect: () => true, mayAsk: () => true, resolve: resolveAll };
  return {
    protocols: ['https:'],
    mayConnect: isPublicAddress,
    mayAsk: (host) => isAllowedHost(host, access.allowedHosts),
    resolve: resolveAll,
  };
}

/** One file; its name is the last part of the path. @throws IngestError SOURCE_FORBIDDEN, OPTIONS_INVALID */
export function httpFile(
  location: string,
  split: SplitName | undefined,
  context: SourceContext,
  reach = reachOf(context.options),
): SourceFile {
  const url = checkedUrl(location, undefined, reach);
  const name = shownUrl(url);
  const relative = decoded(/[^/]*$/.exec(url.pathname)?.[0] ?? '') || url.hostname;
  return { name, relative, split, bytes: undefined, path: undefined, open: () => body(url, name, reach, context) };
}

/** What is no UTF-8 stays as it is written. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part.replace(/%(?![0-9a-f]{2})/gi, '%25'));
  } catch {
    return part;
  }
}

/** Without its query, which may be a signature. */
const shownUrl = (url: URL): string => `${url.protocol}//${url.host}${url.pathname}`;

function checkedUrl(location: string, base: URL | undefined, reach: Reach): URL {
  const url = URL.canParse(location, base?.href) ? new URL(location, base) : undefined;
  if (!url) throw new IngestError('OPTIONS_INVALID', 'This is no URL.', { file: location.slice(0, 200).split('?')[0] });
  const place = { file: shownUrl(url) };
  if (!reach.protocols.includes(url.protocol))
    throw new IngestError('SOURCE_FORBIDDEN', `${url.protocol}// is not read here; ${reach.protocols.join(' or ')}// is.`, place);
  if (url.username !== '' || url.password !== '')
    throw new IngestError('SOURCE_FORBIDDEN', 'The address has a name and password in it.', { file: `${url.protocol}//${url.host}` });
  if (!reach.mayAsk(url.hostname)) throw new IngestError('SOURCE_FORBIDDEN', 'The host is not one of those that may be asked.', place);
  // A literal address is not looked up, so it is checked here. URL has already made 0x7f.1 and 2130706433 into 127.0.0.1.
  const literal = url.hostname.replace(/^\[|\]$/g, '');
  if (isIP(literal) !== 0 && !reach.mayConnect(literal)) throw forbiddenAddress(place);
  return url;
}

const forbiddenAddress = (place: { file: string }): IngestError =>
  new IngestError('SOURCE_FORBIDDEN', 'The host has an address of a private network or of this machine.', place);

async function* body(first: URL, name: string, reach: Reach, context: SourceContext): AsyncGenerator<Uint8Array> {
  const deadline = AbortSignal.timeout(context.options.limits.requestDeadlineMs);
  const signal = context.signal ? AbortSignal.any([context.signal, deadline]) : deadline;
  const { sourceBytes, idleMs } = context.options.limits;
  const tooLarge = (): IngestError => new IngestError('SOURCE_TOO_LARGE', `The answer has more than ${sourceBytes} bytes.`, { file: name });
  let response: IncomingMessage | undefined;
  try {
    response = await answered(first, reach, { signal, idleMs });
    const claimed = Number(response.headers['content-length'] ?? NaN);
    if (claimed > sourceBytes) throw tooLarge();
    let bytes = 0;
    for await (const piece of heard(response, idleMs)) {
      bytes += piece.length;
      if (bytes > sourceBytes) throw tooLarge();
      context.traffic.bytesRead += piece.length;
      yield piece;
    }
    if (!response.complete) throw new Error('the answer broke off');
  } catch (error) {
    context.signal?.throwIfAborted();
    if (error instanceof IngestError) throw error;
    const why = deadline.aborted ? 'it took longer than the deadline' : (error as Error).message || (error as { code?: string }).code;
    throw new IngestError('SOURCE_UNREADABLE', `${why}.`, { file: name }, { cause: error });
  } finally {
    response?.destroy();
  }
}

const silent = (idleMs: number): Error => new Error(`nothing was heard for ${idleMs / 1000} s`);

/** The pieces of a body. Silence is counted while one is waited for, and not while whoever takes them is busy. */
async function* heard(response: IncomingMessage, idleMs: number): AsyncGenerator<Uint8Array> {
  const pieces = (response as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  for (;;) {
    const timer = setTimeout(() => response.destroy(silent(idleMs)), idleMs);
    const next = await pieces.next().finally(() => clearTimeout(timer));
    if (next.done === true) return;
    yield next.value;
  }
}

interface Patience {
  readonly signal: AbortSignal;
  readonly idleMs: number;
}

/** The answer after its redirects. */
async function answered(first: URL, reach: Reach, patience: Patience): Promise<IncomingMessage> {
  let url = first;
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
    const response = await asked(url, reach, patience);
    const status = response.statusCode ?? 0;
    if (!REDIRECTS.has(status)) {
      if (status === 200) return response;
      response.destroy();
      const code =
        status === 404 || status === 410 ? 'SOURCE_NOT_FOUND' : status === 401 || status === 403 ? 'SOURCE_FORBIDDEN' : 'SOURCE_UNREADABLE';
      throw new IngestError(code, `The answer is HTTP ${status}.`, { file: shownUrl(url) });
    }
    response.destroy();
    const { location } = response.headers;
    if (location === undefined) throw new IngestError('SOURCE_UNREADABLE', 'A redirect leads nowhere.', { file: shownUrl(url) });
    const next = checkedUrl(location, url, reach);
    if (url.protocol === 'https:' && next.protocol !== 'https:')
      throw new IngestError('SOURCE_FORBIDDEN', 'A redirect leads from https:// to http://.', { file: shownUrl(next) });
    url = next;
  }
  throw new IngestError('SOURCE_UNREADABLE', `More than ${REDIRECTS_MAX} redirects.`, { file: shownUrl(first) });
}

function asked(url: URL, reach: Reach, { signal, idleMs }: Patience): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, {
      signal,
      agent: false,
      lookup: checkedLookup(url, reach),
      headers: { 'accept-encoding': 'identity', 'user-agent': 'paceline' },
    });
    request.setTimeout(idleMs, () => request.destroy(silent(idleMs)));
    request.once('response', (response) => {
      request.setTimeout(0); // from here on whoever reads the body counts
      resolve(response);
    });
    request.on('error', reject);
    request.end();
  });
}

/** The addresses that the socket may connect to: no address of a name may be forbidden, so an answer with both kinds is refused as well. */
function checkedLookup(url: URL, reach: Reach): LookupFunction {
  return (host, { all }, done) =>
    reach.resolve(host, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error || !first) done(error ?? new Error(`${host} has no address`), '', 4);
      else if (!addresses.every(({ address }) => reach.mayConnect(address))) done(forbiddenAddress({ file: shownUrl(url) }), '', 4);
      else if (all === true) done(null, addresses);
      else done(null, first.address, first.family);
    });
}
