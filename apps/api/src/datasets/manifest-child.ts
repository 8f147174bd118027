/**
 * One manifest in a process of its own, with a limit on memory and time: a thread would share the bound on the heap of the api. Opened for a commit or
 * a question, ended with it.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { StorageError, type StorageErrorCode } from '@paceline/storage';
import type { Features } from '@paceline/spec';
import { endedForMemory, forked } from '../child-process.js';
import { Fault } from '../fault.js';
import type { Answer, Asked, Question } from './manifest-questions.js';
import type { LearnRequest, ManifestReply, ManifestRequest, ReadManifest } from './manifest-process.js';

const HEAP_MEGABYTES = 512;
const READ_DEADLINE_MS = 60_000;
const PUT_DEADLINE_MS = 120_000;
const ANSWER_DEADLINE_MS = 60_000;
const LEARN_DEADLINE_MS = 120_000;
const CHECK_DEADLINE_MS = 900_000;
const MAX_DETAIL = 2000;

export class ManifestChild {
  private readonly child = forked(entry(), HEAP_MEGABYTES);

  constructor() {
    // Until somebody asks; an error that nobody hears would end the process.
    this.child.on('error', () => undefined);
  }

  /** @throws Fault INVALID_INPUT with what is wrong where */
  async read(json: Uint8Array): Promise<ReadManifest> {
    const reply = await this.ask({ kind: 'read', json }, READ_DEADLINE_MS);
    if (reply.kind !== 'read') throw unexpected(reply);
    return reply;
  }

  /** After `read`. @throws Fault INVALID_INPUT naming each shard that is not what the manifest says; StorageError */
  async check(storeUrl: string, teamId: string): Promise<void> {
    await this.ask({ kind: 'check', storeUrl, teamId }, CHECK_DEADLINE_MS);
  }

  /** After `read`: the manifest lies in the store. @throws StorageError */
  async put(storeUrl: string, teamId: string): Promise<void> {
    await this.ask({ kind: 'put', storeUrl, teamId }, PUT_DEADLINE_MS);
  }

  /** Features with the vocabularies of their texts. @throws Fault INVALID_INPUT with what is wrong with them */
  async learn(request: Omit<LearnRequest, 'kind'>): Promise<Features | undefined> {
    const reply = await this.ask(Object.assign({ kind: 'learn' as const }, request), LEARN_DEADLINE_MS);
    return reply.kind === 'learned' ? reply.features : undefined;
  }

  /** About the manifest that lies in the store. @throws the Fault that the answer comes to; StorageError */
  async answer<Q extends Question>(
    of: { readonly storeUrl: string; readonly teamId: string; readonly version: string },
    question: Q,
    asked: Asked<Q>,
  ): Promise<Answer<Q>> {
    const reply = await this.ask(Object.assign({ kind: 'answer' as const, question, asked }, of), ANSWER_DEADLINE_MS);
    if (reply.kind !== 'answered') throw unexpected(reply);
    return reply.answer as Answer<Q>;
  }

  async end(): Promise<void> {
    const { child } = this;
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const over = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await over;
  }

  private ask(request: ManifestRequest, deadlineMs: number): Promise<ManifestReply> {
    return new Promise((resolve, reject) => {
      const { child } = this;
      const finish = (act: () => void): void => {
        clearTimeout(timer);
        child.off('message', onMessage).off('error', onError).off('exit', onExit);
        act();
      };
      const onMessage = (message: unknown): void => {
        const reply = message as ManifestReply;
        const error = errorOf(reply);
        finish(() => (error ? reject(error) : resolve(reply)));
      };
      const onError = (error: Error): void => finish(() => reject(error));
      const onExit = (code: number | null, killedBy: NodeJS.Signals | null): void =>
        finish(() =>
          reject(endedForMemory(code, killedBy) ? tooLarge() : new Error(`its process ended (${killedBy ?? `status ${code}`})`)),
        );
      const timer = setTimeout(
        () => finish(() => reject(new Fault('TOO_BUSY', `The dataset was not read within ${deadlineMs / 1000} s. Try again.`, 5))),
        deadlineMs,
      );
      child.once('message', onMessage).once('error', onError).once('exit', onExit);
      if (child.connected) child.send(request);
      else onExit(child.exitCode, child.signalCode);
    });
  }
}

const unexpected = ({ kind }: ManifestReply): Error => new Error(`the process of a manifest answered ${kind}`);
const tooLarge = (): Fault =>
  new Fault('TOO_LARGE', `Reading the manifest takes more than ${HEAP_MEGABYTES} MB; it has too many columns or entries.`);

function errorOf(reply: ManifestReply): Error | undefined {
  if (reply.kind === 'issues') return issuesFault(reply.issues);
  if (reply.kind === 'refused') return new Fault(reply.code, reply.message);
  if (reply.kind !== 'failed') return undefined;
  return reply.code === 'INTERNAL'
    ? new Error(reply.message)
    : new StorageError(reply.code as StorageErrorCode, reply.message.replace(/^[A-Z_]+: /, ''));
}

export function issuesFault(issues: readonly { readonly path: string; readonly message: string }[]): Fault {
  const detail = issues.map(({ path, message }) => `${path}: ${message}`).join('; ');
  return new Fault('INVALID_INPUT', detail.slice(0, MAX_DETAIL), undefined, issues);
}

/** The file of the process: the one in the bundle, where the api is started from it. When this file is run from its source (tests), the built neighbour is taken. */
function entry(): string {
  const beside = new URL('./manifest-process.js', import.meta.url);
  if (existsSync(beside)) return fileURLToPath(beside);
  const built = new URL('../../dist/datasets/manifest-process.js', import.meta.url);
  if (!existsSync(built)) throw new Error('apps/api is not built: run npm run build');
  return fileURLToPath(built);
}
