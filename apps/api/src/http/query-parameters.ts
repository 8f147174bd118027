/**
 * Query parameters of REST, as strict as bodies are: which ones a route takes stands in the OpenAPI document, any other is refused,
 * and one that takes a single value must not stand twice. Handlers then read plain texts.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Fault } from '../fault.js';
import type { FieldIssue } from '../graphql/result.types.js';
import { queryParametersOf } from './openapi.js';
import { sendFault } from './problem.filter.js';

const NO_EVENT_STREAM =
  'There are no server-sent events here. Subscriptions go over WebSocket (graphql-transport-ws) at /graphql; REST gives events in pages, go on with `after`.';

export type QueryValues = Readonly<Record<string, string | undefined>>;

export function addQueryCheck(instance: FastifyInstance): void {
  const table = queryParametersOf();
  instance.addHook('preValidation', async (request: FastifyRequest, reply: FastifyReply) => {
    const { url } = request.routeOptions;
    if (/^\s*text\/event-stream\s*(?:;[^,]*)?$/i.test(request.headers.accept ?? '') && (url === '/graphql' || url?.startsWith('/api/')))
      return sendFault(request, reply, new Fault('NOT_ACCEPTABLE', NO_EVENT_STREAM));
    if (!url?.startsWith('/api/')) return;
    const known = table.get(`${request.method === 'HEAD' ? 'GET' : request.method} ${url}`) ?? new Map<string, boolean>();
    const issues = Object.entries(request.query as Record<string, unknown>).flatMap(([name, value]) => issueOf(name, value, known) ?? []);
    if (issues.length === 0) return;
    const shown = issues.slice(0, 20);
    const detail = shown.map(({ path, message }) => `${path}: ${message}`).join('; ');
    return sendFault(request, reply, new Fault('INVALID_INPUT', detail.slice(0, 2000), undefined, shown));
  });
}

/** @param known names with whether they may be repeated */
function issueOf(name: string, value: unknown, known: ReadonlyMap<string, boolean>): FieldIssue | undefined {
  const mayRepeat = known.get(name);
  if (mayRepeat === undefined) {
    const offered = known.size > 0 ? `there are ${[...known.keys()].join(', ')}` : 'this path takes none';
    return { path: name.slice(0, 60), message: `unknown query parameter; ${offered}` };
  }
  return typeof value === 'string' || mayRepeat ? undefined : { path: name, message: 'is given more than once' };
}

/** The values of a parameter that may be repeated, each with commas in it or not. */
export const listOf = (value: string | readonly string[] | undefined): string[] | undefined =>
  value === undefined ? undefined : [value].flat().flatMap((text) => text.split(','));
