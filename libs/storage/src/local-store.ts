/**
 * The object store on a folder. A write goes through these boundaries, and a process may die at each of them:
 *
 *   make folders, sync their parents → create `.name.<pid>-<random>.partial` → write… → sync the file → close
 *     → rename over the name (or link under the name and unlink, when nothing may be overwritten) → sync the folder
 *
 * Until the rename the old object, or none, is there; after it the new one is, and its bytes were synced before its name was.
 * What a dead writer leaves is a file whose name begins with a dot; `list` does not see it and `removeUnfinished` removes it.
 *
 * Hosts that share the folder over a network may use one store at the same time: nothing is locked, names decide.
 */
import { createHash, randomBytes } from 'node:crypto';
import path from 'node:path';
import type { Disk, DiskFile } from './disk.js';
import { StorageError } from './errors.js';
import {
  checkKey,
  checkPrefix,
  checkRange,
  checkSignal,
  isKeySegment,
  MARKER_KEY,
  PIECE_BYTES,
  READ_MAX_BYTES,
  readOrMakeIdentity,
  type ObjectBody,
  type ObjectStore,
  type PutOptions,
  type StoredObject,
} from './object-store.js';

const MOST_DURABLE_FOLDERS = 10_000;
const PARTIAL = /^\..*\.partial$/;
const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | undefined)?.code ?? '');

export class LocalStore implements ObjectStore {
  readonly kind = 'local';
  /** Folders whose own names are synced, as far as this process knows. */
  private readonly durableFolders = new Set<string>();

  constructor(
    readonly place: string,
    private readonly disk: Disk,
    private readonly nowMs: () => number = Date.now,
  ) {}

  async identity(): Promise<string> {
    const id = await readOrMakeIdentity(this);
    // The process that made the mark may have died before the file name was synced. A loss of power must not remove a mark that others rely on.
    await this.guard(MARKER_KEY, () => this.disk.syncFolder(this.place));
    return id;
  }

  async put(key: string, body: ObjectBody, { ifAbsent = false, signal }: PutOptions = {}): Promise<{ bytes: number; sha256: string }> {
    checkKey(key);
    checkSignal(key, signal);
    const target = this.fileOf(key);
    const folder = path.dirname(target);
    const temporary = path.join(folder, `.${path.basename(target)}.${process.pid}-${randomBytes(6).toString('hex')}.partial`);
    const file = await this.open(temporary, key);
    let stage: 'written' | 'named' = 'written';
    try {
      const written = await this.fill(file, key, body, signal);
      if (ifAbsent) {
        await this.guard(key, () => this.disk.link(temporary, target));
        stage = 'named';
        await this.guard(key, () => this.disk.remove(temporary));
      } else {
        await this.guard(key, () => this.disk.rename(temporary, target));
        stage = 'named';
      }
      await this.guard(key, () => this.disk.syncFolder(folder));
      return written;
    } catch (error) {
      if (stage === 'written') await this.discard(temporary);
      throw error;
    }
  }

  async read(key: string, from = 0, to = from + READ_MAX_BYTES): Promise<Uint8Array> {
    checkKey(key);
    checkRange(key, from, to);
    return this.guard(key, () => this.disk.read(this.fileOf(key), from, Math.min(to, from + READ_MAX_BYTES)));
  }

  async *stream(key: string): AsyncIterable<Uint8Array> {
    for (let from = 0; ; from += PIECE_BYTES) {
      const piece = await this.read(key, from, from + PIECE_BYTES);
      if (piece.length > 0) yield piece;
      if (piece.length < PIECE_BYTES) return;
    }
  }

  async list(prefix: string): Promise<StoredObject[]> {
    checkPrefix(prefix);
    const found: StoredObject[] = [];
    for await (const { key, bytes, isPartial } of this.walk(prefix)) if (!isPartial && key.startsWith(prefix)) found.push({ key, bytes });
    return found.sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  async remove(keys: readonly string[]): Promise<void> {
    keys.forEach(checkKey);
    for (const key of keys) {
      const file = this.fileOf(key);
      try {
        await this.disk.remove(file);
        await this.disk.syncFolder(path.dirname(file));
      } catch (error) {
        if (codeOf(error) !== 'ENOENT') throw this.translated(key, error);
      }
      await this.removeEmptyFolders(path.dirname(file));
    }
  }

  async removeUnfinished(prefix: string, idleMs: number): Promise<number> {
    checkPrefix(prefix);
    let removed = 0;
    for await (const { key, isPartial, modifiedAtMs } of this.walk(prefix)) {
      if (!isPartial || modifiedAtMs > this.nowMs() - idleMs) continue;
      const file = this.fileOf(key);
      await this.discard(file);
      await this.removeEmptyFolders(path.dirname(file));
      removed++;
    }
    return removed;
  }

  private fileOf(key: string): string {
    return path.join(this.place, ...key.split('/'));
  }

  private async open(temporary: string, key: string): Promise<DiskFile> {
    const folder = path.dirname(temporary);
    for (let tries = 0; ; tries++) {
      try {
        await this.makeFolders(folder);
        return await this.disk.create(temporary);
      } catch (error) {
        // A sweep may have removed the empty folder in between: make it again, a bounded number of times.
        if (codeOf(error) !== 'ENOENT' || tries === 3) throw this.translated(key, error);
        for (const known of this.durableFolders) if (folder.startsWith(known)) this.durableFolders.delete(known);
      }
    }
  }

  private async fill(file: DiskFile, key: string, body: ObjectBody, signal: AbortSignal | undefined) {
    const hash = createHash('sha256');
    let bytes = 0;
    let isOpen = true;
    try {
      for await (const piece of body) {
        checkSignal(key, signal);
        await this.guard(key, () => file.write(piece));
        hash.update(piece);
        bytes += piece.length;
      }
      checkSignal(key, signal);
      await this.guard(key, () => file.sync());
      isOpen = false;
      await this.guard(key, () => file.close());
    } finally {
      // The error that is under way says what went wrong; that closing fails too adds nothing to it.
      if (isOpen) await file.close().catch(() => undefined);
    }
    return { bytes, sha256: hash.digest('hex') };
  }

  /** Makes the folder and its parents, and syncs the parents so that the names survive. */
  private async makeFolders(folder: string): Promise<void> {
    if (this.durableFolders.has(folder)) return;
    const parent = path.dirname(folder);
    const isInside = folder.length > this.place.length;
    if (isInside) await this.makeFolders(parent);
    let isNew: boolean;
    try {
      isNew = await this.disk.makeFolder(folder);
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || isInside || parent === folder) throw error;
      await this.makeFolders(parent);
      isNew = await this.disk.makeFolder(folder);
    }
    // Inside the store a folder that was there may come from a process that died before it synced; above it that is not our business.
    if (isNew || isInside) await this.disk.syncFolder(parent);
    // To forget one costs a sync.
    if (this.durableFolders.size >= MOST_DURABLE_FOLDERS) this.durableFolders.clear();
    this.durableFolders.add(folder);
  }

  /** Removes a temporary file. */
  private async discard(temporary: string): Promise<void> {
    // When that fails too, the file stays, unseen, until a sweep finds it idle; the failure of the write itself is what is thrown.
    await this.disk.remove(temporary).catch(() => undefined);
  }

  private async removeEmptyFolders(from: string): Promise<void> {
    for (let folder = from; folder.length > this.place.length; folder = path.dirname(folder)) {
      try {
        await this.disk.removeFolder(folder);
      } catch (error) {
        if (['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes(codeOf(error))) return;
        throw this.translated(folder, error);
      }
      this.durableFolders.delete(folder);
    }
  }

  /** All files below the folder of the prefix, partial ones too. Folders that vanish meanwhile are empty. */
  private async *walk(prefix: string): AsyncIterable<{ key: string; bytes: number; modifiedAtMs: number; isPartial: boolean }> {
    const waiting = [prefix.slice(0, prefix.lastIndexOf('/') + 1)];
    for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
      const at = folder;
      const entries = await this.disk.list(path.join(this.place, at)).catch((error: unknown) => {
        if (codeOf(error) === 'ENOENT') return [];
        throw this.translated(at, error);
      });
      for (const { name, isFolder, bytes, modifiedAtMs } of entries) {
        const key = at + name;
        const isPartial = !isFolder && PARTIAL.test(name);
        if (!isPartial && !isKeySegment(name)) continue;
        if (isFolder && `${key}/`.startsWith(prefix.slice(0, key.length + 1))) waiting.push(`${key}/`);
        else if (!isFolder) yield { key, bytes, modifiedAtMs, isPartial };
      }
    }
  }

  private async guard<T>(key: string, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      throw this.translated(key, error);
    }
  }

  private translated(key: string, error: unknown): Error {
    const at = `${key} in ${this.place}`;
    const code = codeOf(error);
    if (error instanceof StorageError) return error;
    if (code === 'EEXIST') return new StorageError('ALREADY_EXISTS', `there is an object ${at} already`, { cause: error });
    if (code === 'ENOENT') return new StorageError('NO_SUCH_OBJECT', `there is no object ${at}`, { cause: error });
    if (code === 'ENOSPC' || code === 'EDQUOT') return new StorageError('DISK_FULL', `no room to write ${at}`, { cause: error });
    if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS')
      return new StorageError('STORE_FORBIDDEN', `no right to use ${at} (${code})`, { cause: error });
    return new StorageError('STORE_UNAVAILABLE', `${at}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}
