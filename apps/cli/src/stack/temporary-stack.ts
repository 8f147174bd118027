/** A whole cluster for the length of one command, with databases in a folder that is gone afterwards. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, type PacelineClient } from '@paceline/client';
import { guardDirectory } from '@paceline/runtime';
import { UserError } from '@paceline/runtime/user-error';
import { clean } from '../terminal/clean.js';
import type { Terminal } from '../terminal/terminal.js';
import { newApiKey, newTokenSecret, startLocalStack, type LocalStack } from './local-stack.js';

/**
 * @param use gets a client of a team of its own, and a signal that says that the cluster is broken or that nobody waits any more
 * @returns undefined when it was interrupted
 */
export async function withTemporaryStack<T>(
  { name, workers, servers }: { readonly name: string; readonly workers: number; readonly servers: number },
  terminal: Terminal,
  signal: AbortSignal,
  use: (client: PacelineClient, signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const dataDir = mkdtempSync(join(tmpdir(), `paceline-${name}-`));
  chmodSync(dataDir, 0o711); // PostgreSQL runs as another user when root starts it
  const keepDirectory = guardDirectory(dataDir);
  const bootstrapKey = newApiKey();
  let stack: LocalStack | undefined;
  try {
    const onStep = (text: string): void => terminal.note(terminal.style('dim', text, 'stderr'));
    const options = { dataDir, temporary: true, servers, workers, host: '127.0.0.1', port: 0, tokenSecret: newTokenSecret(), bootstrapKey };
    stack = await startLocalStack(Object.assign(options, { signal, onStep }));
    const broken = new AbortController();
    void stack.failed.then((reason) => broken.abort(reason));
    const result = await asTeam(stack.url, bootstrapKey, name, (client) => use(client, AbortSignal.any([signal, broken.signal])));
    if (broken.signal.aborted) throw new UserError('CLUSTER_FAILED', clean(String(broken.signal.reason), 1000), { exit: 'unavailable' });
    return result;
  } catch (error) {
    if (signal.aborted) return undefined; // what was ended fails
    throw error;
  } finally {
    await stack?.stop();
    rmSync(dataDir, { recursive: true, force: true });
    keepDirectory();
  }
}

async function asTeam<T>(url: string, adminKey: string, name: string, use: (client: PacelineClient) => Promise<T>): Promise<T> {
  const admin = createClient({ url, apiKey: adminKey });
  const team = await admin.createTeam(name);
  const { secret } = await admin.createApiKey(team.id, name);
  const client = createClient({ url, apiKey: secret });
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}
