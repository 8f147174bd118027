/** One manifest in a thread of its own, with a limit on memory and time. Opened for a commit, ended with it. */
import { existsSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { StorageError, type StorageErrorCode } from '@paceline/storage';
import type { Features } from '@paceline/spec';
import { Fault } from '../fault.js';
import type { CheckRequest, LearnRequest, ManifestReply, ReadManifest, ReadRequest } from './manifest-worker.js';

const HEAP_MEGABYTES = 512;
const READ_DEADLINE_MS = 60_000;
const LEARN_DEADLINE_MS = 120_000;
const CHECK_DEADLINE_MS = 900_000;
const MAX_DETAIL = 2000;

export class ManifestThread {
  private readonly worker = new Worker(entry(), { execArgv: [], resourceLimits: { maxOldGenerationSizeMb: HEAP_MEGABYTES } });

  constructor() {
    // Until somebody asks; an error that nobody hears would end the process.
    this.worker.on('error', () => undefined);
  }

  /** @throws Fault INVALID_INPUT with what is wrong where */
  async read(json: Uint8Array): Promise<ReadManifest> {
    const reply = await this.ask({ kind: 'read', json }, READ_DEADLINE_MS);
    if (reply.kind !== 'read') throw new Error(`the manifest thread answered ${reply.kind}`);
    return reply;
  }

  /** After `read`. @throws Fault INVALID_INPUT naming each shard that is not what the manifest says; StorageError */
  async check(storeUrl: string, teamId: string): Promise<void> {
    await this.ask({ kind: 'check', storeUrl, teamId }, CHECK_DEADLINE_MS);
  }

  /** Features with the vocabularies of their texts. @throws Fault INVALID_INPUT with what is wrong with them */
  async learn(request: Omit<LearnRequest, 'kind'>): Promise<Features | undefined> {
    const reply = await this.ask(Object.assign({ kind: 'learn' as const }, request), LEARN_DEADLINE_MS);
    return reply.kind === 'learned' ? reply.features : undefined;
  }

  async end(): Promise<void> {
    await this.worker.terminate();
  }

  private ask(request: ReadRequest | CheckRequest | LearnRequest, deadlineMs: number): Promise<ManifestReply> {
    return new Promise((resolve, reject) => {
      const { worker } = this;
      const finish = (act: () => void): void => {
        clearTimeout(timer);
        worker.off('message', onMessage).off('error', onError).off('exit', onExit);
        act();
      };
      const onMessage = (reply: ManifestReply): void =>
        finish(() => {
          if (reply.kind === 'issues') reject(issuesFault(reply.issues));
          else if (reply.kind === 'failed')
            reject(
              reply.code === 'INTERNAL'
                ? new Error(reply.message)
                : new StorageError(reply.code as StorageErrorCode, reply.message.replace(/^[A-Z_]+: /, '')),
            );
          else resolve(reply);
        });
      const onError = (error: NodeJS.ErrnoException): void =>
        finish(() =>
          reject(
            error.code === 'ERR_WORKER_OUT_OF_MEMORY'
              ? new Fault('TOO_LARGE', `Checking the manifest takes more than ${HEAP_MEGABYTES} MB; it has too many columns or entries.`)
              : error,
          ),
        );
      const onExit = (status: number): void =>
        finish(() => reject(new Error(`the thread that checks manifests ended with status ${status} and no answer`)));
      const timer = setTimeout(
        () => finish(() => reject(new Fault('TOO_BUSY', `The dataset was not checked within ${deadlineMs / 1000} s. Try again.`, 5))),
        deadlineMs,
      );
      worker.once('message', onMessage).once('error', onError).once('exit', onExit);
      worker.postMessage(request);
    });
  }
}

export function issuesFault(issues: readonly { readonly path: string; readonly message: string }[]): Fault {
  const detail = issues.map(({ path, message }) => `${path}: ${message}`).join('; ');
  return new Fault('INVALID_INPUT', detail.slice(0, MAX_DETAIL), undefined, issues);
}

/** Threads run JavaScript: when this file is run from its source (tests), the built neighbour is taken. */
function entry(): URL {
  const beside = new URL('./manifest-worker.js', import.meta.url);
  if (existsSync(beside)) return beside;
  const built = new URL('../../dist/datasets/manifest-worker.js', import.meta.url);
  if (!existsSync(built)) throw new Error('apps/api is not built: run npm run build');
  return built;
}
