/**
 * The object store: keys and bytes, on a folder of this machine (or one that all hosts share) or in an S3 bucket. An object
 * appears whole or not at all, and `ifAbsent` never overwrites: on these two rules the checkpoints are built.
 *
 * One contract suite runs on both (libs/testkit/src/object-store.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { StorageError } from './errors.js';

export interface PutOptions {
  /** Refuse with ALREADY_EXISTS, instead of replacing, when the key is taken. */
  readonly ifAbsent?: boolean;
  /** Gives the write up; nothing of it becomes visible. */
  readonly signal?: AbortSignal;
}

export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
}

export type ObjectBody = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

export interface ObjectStore {
  readonly kind: 'local' | 's3';
  /** For messages: the folder or the bucket and prefix, without credentials. */
  readonly place: string;
  /**
   * Equal for two processes exactly when they see the same objects: a UUID in a marker object that the first one makes.
   * So hosts without a shared folder are found out before a run starts on them.
   */
  identity(): Promise<string>;
  /**
   * Makes the object visible when all of the body is stored for good. A piece of the body may be reused when the next one is asked for.
   * @throws StorageError ALREADY_EXISTS, DISK_FULL, STORE_UNAVAILABLE, STORE_FORBIDDEN, WRITE_ABORTED, BAD_KEY; what the body throws
   */
  put(key: string, body: ObjectBody, options?: PutOptions): Promise<{ bytes: number; sha256: string }>;
  /** Bytes [from, to) of the object; fewer when it ends before. @throws StorageError NO_SUCH_OBJECT, STORE_UNAVAILABLE */
  read(key: string, from?: number, to?: number): Promise<Uint8Array>;
  /** The object in pieces of at most about 1 MiB. @throws StorageError NO_SUCH_OBJECT, STORE_UNAVAILABLE */
  stream(key: string): AsyncIterable<Uint8Array>;
  /** Objects whose keys begin with the prefix, in the order of their keys. */
  list(prefix: string): Promise<StoredObject[]>;
  /** Removes the objects in the order given; one that is not there is fine. */
  remove(keys: readonly string[]): Promise<void>;
  /** Removes what writers under the prefix have left behind that ended without finishing and were not heard of for `idleMs`. */
  removeUnfinished(prefix: string, idleMs: number): Promise<number>;
}

/** Objects read at once are small (manifests) or chunks; this bounds what one read allocates. */
export const READ_MAX_BYTES = 1 << 30;
export const PIECE_BYTES = 1 << 20;
const KEY_MAX_CHARACTERS = 900;
const SEGMENT = /^(?!\.)[A-Za-z0-9._=-]{1,200}$/;
export const MARKER_KEY = 'store-identity.json';

/** Whether a file name is one that a key can have; others in a folder are not ours. */
export const isKeySegment = (name: string): boolean => SEGMENT.test(name);

/** A key is a path of plain segments: none begins with a dot, so none leaves the store or names a temporary file. @throws StorageError BAD_KEY */
export function checkKey(key: string): void {
  if (key.length > KEY_MAX_CHARACTERS || !key.split('/').every((segment) => SEGMENT.test(segment)))
    throw new StorageError('BAD_KEY', `${JSON.stringify(key.slice(0, 100))} is no key: segments of A-Z a-z 0-9 . _ = - with / between`);
}

/** A prefix is empty or a key that may end with a slash. @throws StorageError BAD_KEY */
export function checkPrefix(prefix: string): void {
  if (prefix !== '') checkKey(prefix.endsWith('/') ? prefix.slice(0, -1) : prefix);
}

/** @throws StorageError BAD_KEY when the range is none */
export function checkRange(key: string, from: number, to: number): void {
  if (!Number.isSafeInteger(from) || from < 0 || to < from) throw new StorageError('BAD_KEY', `[${from}, ${to}) is no range of ${key}`);
}

/** @throws StorageError WRITE_ABORTED */
export function checkSignal(key: string, signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new StorageError('WRITE_ABORTED', `writing ${key} was given up`, { cause: signal.reason });
}

/** Reads the marker object, or makes it; of two that make it at once one wins and both read that. */
export async function readOrMakeIdentity(store: ObjectStore): Promise<string> {
  for (let tries = 0; tries < 3; tries++) {
    try {
      const { id } = JSON.parse(Buffer.from(await store.read(MARKER_KEY)).toString('utf8')) as { id?: unknown };
      if (typeof id === 'string' && id !== '') return id;
      throw new StorageError('STORE_UNAVAILABLE', `${MARKER_KEY} in ${store.place} holds no identity; remove it`);
    } catch (error) {
      if (error instanceof SyntaxError)
        throw new StorageError('STORE_UNAVAILABLE', `${MARKER_KEY} in ${store.place} is no JSON; remove it`, { cause: error });
      if (!(error instanceof StorageError) || error.code !== 'NO_SUCH_OBJECT') throw error;
    }
    try {
      await store.put(MARKER_KEY, [Buffer.from(JSON.stringify({ id: randomUUID() }))], { ifAbsent: true });
    } catch (error) {
      if (!(error instanceof StorageError) || error.code !== 'ALREADY_EXISTS') throw error;
    }
  }
  throw new StorageError('STORE_UNAVAILABLE', `${MARKER_KEY} in ${store.place} comes and goes`);
}
