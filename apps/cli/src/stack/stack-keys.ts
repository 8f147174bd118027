/** Secrets of the local stack in its data folder, and the key that the command line has for it. */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createClient, PacelineApiError } from '@paceline/client';
import { UserError } from '@paceline/runtime';
import { readConfiguration, writeConfiguration } from '../configuration.js';
import { isLoopback } from '../retry.js';
import { clean } from '../terminal/clean.js';
import type { Terminal } from '../terminal/terminal.js';
import { newApiKey, newTokenSecret } from './local-stack.js';

interface Secrets {
  readonly tokenSecret: string;
  readonly bootstrapKey: string;
}

/** Made at the first start and kept, so that keys and tokens outlive a restart. */
export function readSecrets(dataDir: string): Secrets {
  const file = join(dataDir, 'secrets.json');
  if (existsSync(file)) {
    const { tokenSecret, bootstrapKey } = JSON.parse(readFileSync(file, 'utf8')) as Partial<Secrets>;
    if (typeof tokenSecret === 'string' && typeof bootstrapKey === 'string') return { tokenSecret, bootstrapKey };
  }
  const secrets = { tokenSecret: newTokenSecret(), bootstrapKey: newApiKey() };
  writeSecrets(dataDir, secrets);
  return secrets;
}

function writeSecrets(dataDir: string, secrets: Secrets): void {
  const file = join(dataDir, 'secrets.json');
  writeFileSync(`${file}.new`, JSON.stringify(secrets), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** The api has made an administrator key because that of the data folder was revoked, and no other was left. */
export function keepAdminKey({ madeAdminKey }: { readonly madeAdminKey: string | undefined }, dataDir: string, terminal: Terminal): void {
  if (madeAdminKey === undefined) return;
  writeSecrets(dataDir, Object.assign({}, readSecrets(dataDir), { bootstrapKey: madeAdminKey }));
  terminal.note(`The administrator key in ${join(dataDir, 'secrets.json')} was revoked and no other was left; it is replaced.`);
}

/**
 * A key of its own for the command line, written to the configuration unless a working one is there. The stack may have had another port before, so
 * the key of another address of this machine is tried too; those of other machines stay there.
 */
export async function ensureKey(url: string, dataDir: string, env: NodeJS.ProcessEnv, terminal: Terminal): Promise<string> {
  const present = readConfiguration({ ...env, PACELINE_URL: '', PACELINE_API_KEY: '' }, (text) => terminal.note(text));
  const known = readConfiguration({ ...env, PACELINE_URL: url, PACELINE_API_KEY: '' }, () => undefined);
  const own = known.apiKey ? known : present;
  const write = (apiKey: string, formerUrl: string): string => {
    if (present.url === url && present.apiKey === apiKey) return apiKey;
    writeConfiguration({ url, apiKey, formerUrl }, env);
    if (present.urlFrom === 'file' && !isLoopback(present.url)) {
      const kept = present.apiKey ? `Its key is kept in ${present.file}: ` : '';
      terminal.note(`Commands spoke to ${present.url} and speak to ${url} now. ${kept}PACELINE_URL=${present.url} speaks to it again.`);
    }
    return apiKey;
  };
  if (own.apiKey && (own === known || isLoopback(own.url))) {
    try {
      await createClient({ url, apiKey: own.apiKey }).viewer();
      return write(own.apiKey, own.url);
    } catch (error) {
      if (!(error instanceof PacelineApiError) || error.code !== 'UNAUTHENTICATED') throw error;
      if (own === known) terminal.note(`The key in ${own.file} belongs to another api; it is replaced.`);
    }
  }
  const admin = createClient({ url, apiKey: readSecrets(dataDir).bootstrapKey });
  const { team } = await admin.viewer().catch((error: unknown) => {
    if (!(error instanceof PacelineApiError) || error.code !== 'UNAUTHENTICATED') throw error;
    throw new UserError('ADMIN_KEY_REVOKED', "The administrator's key of this data folder was revoked, and another one took its place.", {
      hint: `Write the administrator's key into ${join(dataDir, 'secrets.json')} as bootstrapKey, or take another data folder with PACELINE_HOME.`,
      exit: 'keyRefused',
    });
  });
  const { secret } = await admin.createApiKey(team.id, `paceline on ${clean(hostname(), 60)}`);
  return write(secret, url);
}
