/**
 * The dashboard's built files at /. What there is, is listed once at the start, so a path is found or not, and never walked.
 * The pages of the dashboard get index.html; other paths without a dot get it too, with 404. /api and /graphql are never shadowed.
 */
import { readdirSync, existsSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance } from 'fastify';
import { UserError } from '@paceline/runtime';
import { Fault } from '../fault.js';
import { sendFault } from './problem.filter.js';

const MAX_FILES = 10_000;
/** The pages of apps/dashboard/src/router.tsx. */
const isPage = (path: string): boolean => /^(?:(?:runs|datasets)(?:\/[^/]{1,200})?)?\/?$/.test(path);

/** @throws UserError DASHBOARD_NOT_BUILT */
export async function serveDashboard(instance: FastifyInstance, folder: string | undefined): Promise<void> {
  if (folder === undefined) {
    instance.get('/', (_request, reply) =>
      reply.send({ name: 'paceline', graphql: '/graphql', rest: '/api/v1', openapi: '/api/v1/openapi.json', dashboard: null }),
    );
    return;
  }
  const root = resolve(folder);
  if (!existsSync(join(root, 'index.html'))) {
    throw new UserError('DASHBOARD_NOT_BUILT', `${root} has no index.html.`, {
      hint: 'Build the dashboard (npm run build), or leave PACELINE_DASHBOARD_DIR away.',
      exit: 'configuration',
    });
  }
  const files = new Set(
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .slice(0, MAX_FILES)
      .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join('/')),
  );
  await instance.register(fastifyStatic, { root, serve: false, index: false, dotfiles: 'ignore', cacheControl: false });
  const isApi = (path: string): boolean => /^(?:api|graphql)(?:\/|$)/i.test(path);
  instance.get('/*', (request, reply) => {
    const path = (request.params as { '*': string })['*'];
    // Vite names what it builds by its content, so those files never change.
    if (files.has(path))
      return reply.header('cache-control', path.startsWith('assets/') ? 'public, max-age=31536000, immutable' : 'no-cache').sendFile(path);
    // A dataset's name may have a dot.
    if (isApi(path) || (!isPage(path) && path.split('/').at(-1)!.includes('.')))
      return sendFault(request, reply, new Fault('NOT_FOUND', `There is nothing at /${path.slice(0, 200)}.`));
    // Elsewhere the page itself says that there is nothing, under a status that says the same.
    return reply
      .status(isPage(path) ? 200 : 404)
      .header('cache-control', 'no-cache')
      .sendFile('index.html');
  });
}
