/**
 * A file system in memory that can fail the way disks and machines do, for tests of what is stored.
 *
 *   before    sees every operation before it happens: may delay it, refuse it (`diskError('ENOSPC', …)`) or stop the machine
 *   stop      from here on every operation fails, as for a process that is dead
 *   survivor  what the next process finds, depending on how the machine went down
 *   flip      a bit that changed on the platter
 *
 * Each file has the bytes that were written and those that were synced; each folder the names that it shows and those that were
 * synced. Between the two lies everything that a loss of power may take.
 */
import path from 'node:path';
import type { Disk, DiskEntry, DiskFile } from '@paceline/storage';

export interface DiskOperation {
  /** Counts all operations of this disk from 0. */
  readonly index: number;
  readonly kind:
    | 'create'
    | 'write'
    | 'sync'
    | 'close'
    | 'rename'
    | 'link'
    | 'remove'
    | 'makeFolder'
    | 'removeFolder'
    | 'syncFolder'
    | 'read'
    | 'list';
  readonly path: string;
  /** Bytes of a write. */
  readonly bytes: number;
}

/**
 * `process`: the process died and the machine lived: all that was written is there. The others are losses of power: `data-lost`
 * keeps names but only synced bytes, `data-zeroed` fills what was not synced with zeros, `data-torn` keeps half of it,
 * `names-lost` keeps all bytes but only synced names, `all-lost` keeps only what was synced.
 */
export const CRASHES = ['process', 'data-lost', 'data-zeroed', 'data-torn', 'names-lost', 'all-lost'] as const;
export type Crash = (typeof CRASHES)[number];

class File {
  synced: Buffer = Buffer.alloc(0);
  modifiedAtMs = 0;
  constructor(public bytes: Buffer = Buffer.alloc(0)) {}
}

class Folder {
  readonly names = new Map<string, File | Folder>();
  syncedNames = new Map<string, File | Folder>();
}

/** An error with one of Node's own codes, as the real disk throws it. */
export const diskError = (code: string, file: string): Error => Object.assign(new Error(`${code}: ${file}`), { code });

export class FaultyDisk implements Disk {
  operations = 0;
  isStopped = false;
  before: (operation: DiskOperation) => void | Promise<void> = () => undefined;

  constructor(
    private readonly root = new Folder(),
    private readonly nowMs: () => number = Date.now,
  ) {}

  /** Dead from now on. */
  stop(): void {
    this.isStopped = true;
  }

  async create(file: string): Promise<DiskFile> {
    const { folder, name } = await this.enter('create', file);
    if (folder.names.has(name)) throw diskError('EEXIST', file);
    const made = new File();
    made.modifiedAtMs = this.nowMs();
    folder.names.set(name, made);
    return {
      write: async (bytes) => {
        const copy = Buffer.from(bytes);
        await this.pass('write', file, copy.length);
        made.bytes = Buffer.concat([made.bytes, copy]);
        made.modifiedAtMs = this.nowMs();
      },
      sync: async () => {
        await this.pass('sync', file);
        made.synced = made.bytes;
      },
      close: () => this.pass('close', file),
    };
  }

  async rename(from: string, to: string): Promise<void> {
    const { folder, name } = await this.enter('rename', from);
    folder.names.delete(path.basename(to));
    folder.names.set(path.basename(to), this.fileIn(folder, name, from));
    folder.names.delete(name);
  }

  async link(from: string, to: string): Promise<void> {
    const { folder, name } = await this.enter('link', from);
    if (folder.names.has(path.basename(to))) throw diskError('EEXIST', to);
    folder.names.set(path.basename(to), this.fileIn(folder, name, from));
  }

  async remove(file: string): Promise<void> {
    const { folder, name } = await this.enter('remove', file);
    this.fileIn(folder, name, file);
    folder.names.delete(name);
  }

  async makeFolder(file: string): Promise<boolean> {
    const { folder, name } = await this.enter('makeFolder', file);
    const there = folder.names.get(name);
    if (there instanceof File) throw diskError('ENOTDIR', file);
    if (!there) folder.names.set(name, new Folder());
    return !there;
  }

  async removeFolder(file: string): Promise<void> {
    const { folder, name } = await this.enter('removeFolder', file);
    if (this.folderAt(file).names.size > 0) throw diskError('ENOTEMPTY', file);
    folder.names.delete(name);
  }

  async syncFolder(file: string): Promise<void> {
    await this.pass('syncFolder', file);
    const folder = this.folderAt(file);
    folder.syncedNames = new Map(folder.names);
  }

  async read(file: string, from: number, to: number): Promise<Uint8Array> {
    const { folder, name } = await this.enter('read', file);
    return new Uint8Array(this.fileIn(folder, name, file).bytes.subarray(from, to));
  }

  size(file: string): Promise<number> {
    return Promise.resolve(this.fileIn(this.folderAt(path.dirname(file)), path.basename(file), file).bytes.length);
  }

  async list(file: string): Promise<DiskEntry[]> {
    await this.pass('list', file);
    return [...this.folderAt(file).names].map(([name, node]) =>
      node instanceof Folder
        ? { name, isFolder: true, bytes: 0, modifiedAtMs: 0 }
        : { name, isFolder: false, bytes: node.bytes.length, modifiedAtMs: node.modifiedAtMs },
    );
  }

  /** The disk as the next process finds it; this one stays as it is. */
  survivor(crash: Crash): FaultyDisk {
    const keepsNames = crash !== 'names-lost' && crash !== 'all-lost';
    const copies = new Map<File, File>();
    const surviving = (file: File): File => {
      const known = copies.get(file);
      if (known) return known;
      const copy = new File(survivingBytes(file, crash));
      copy.synced = copy.bytes;
      copy.modifiedAtMs = file.modifiedAtMs;
      copies.set(file, copy);
      return copy;
    };
    const copyOf = (folder: Folder): Folder => {
      const copy = new Folder();
      for (const [name, node] of keepsNames ? folder.names : folder.syncedNames)
        copy.names.set(name, node instanceof Folder ? copyOf(node) : surviving(node));
      copy.syncedNames = new Map(copy.names);
      return copy;
    };
    return new FaultyDisk(copyOf(this.root), this.nowMs);
  }

  /** All files, by path. */
  files(): string[] {
    const walk = (folder: Folder, at: string): string[] =>
      [...folder.names].flatMap(([name, node]) => (node instanceof Folder ? walk(node, `${at}/${name}`) : [`${at}/${name}`]));
    return walk(this.root, '').sort();
  }

  /** Changes one bit of what is stored, unseen by everybody. */
  flip(file: string, byte: number, bit: number): void {
    const node = this.fileIn(this.folderAt(path.dirname(file)), path.basename(file), file);
    node.bytes = Buffer.from(node.bytes);
    node.bytes[byte]! ^= 1 << bit;
  }

  private async pass(kind: DiskOperation['kind'], file: string, bytes = 0): Promise<void> {
    if (!this.isStopped) await this.before({ index: this.operations++, kind, path: file, bytes });
    // Asked again: the machine may have stopped while the operation was on its way.
    if (this.isStopped) throw diskError('EIO', `${file}: the machine has stopped`);
  }

  private async enter(kind: DiskOperation['kind'], file: string): Promise<{ folder: Folder; name: string }> {
    await this.pass(kind, file);
    return { folder: this.folderAt(path.dirname(file)), name: path.basename(file) };
  }

  private folderAt(file: string): Folder {
    let folder = this.root;
    for (const name of file.split('/').filter(Boolean)) {
      const next = folder.names.get(name);
      if (!next) throw diskError('ENOENT', file);
      if (next instanceof File) throw diskError('ENOTDIR', file);
      folder = next;
    }
    return folder;
  }

  private fileIn(folder: Folder, name: string, file: string): File {
    const node = folder.names.get(name);
    if (!node) throw diskError('ENOENT', file);
    if (node instanceof Folder) throw diskError('EISDIR', file);
    return node;
  }
}

function survivingBytes({ bytes, synced }: File, crash: Crash): Buffer {
  if (crash === 'process' || crash === 'names-lost') return bytes;
  if (crash === 'data-torn') return bytes.subarray(0, synced.length + Math.floor((bytes.length - synced.length) / 2));
  if (crash === 'data-zeroed') return Buffer.concat([synced, Buffer.alloc(bytes.length - synced.length)]);
  return synced;
}
