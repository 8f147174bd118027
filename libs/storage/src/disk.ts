/**
 * The port to a file system: the few operations that the local store is made of, each a point where a process can die or a
 * disk can fail. `nodeDisk` is the real one; the tests and the simulator bring disks that are slow, full, that lose what was
 * not synced, or that flip bits.
 *
 * What a disk promises: bytes of a file survive a loss of power after `sync` of the file; a name (created, linked, renamed,
 * removed) survives it after `syncFolder` of its folder. Before that, anything between nothing and all of it may survive.
 *
 * Failures are errors with the `code` of Node's own (ENOENT, EEXIST, ENOSPC...), whatever the disk.
 */
import { link, mkdir, open, readdir, rename, rmdir, stat, unlink, type FileHandle } from 'node:fs/promises';
import path from 'node:path';

export interface DiskFile {
  /** Appends all of the bytes; they may be reused when the promise resolves. */
  write(bytes: Uint8Array): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface DiskEntry {
  readonly name: string;
  readonly isFolder: boolean;
  /** 0 for folders. */
  readonly bytes: number;
  readonly modifiedAtMs: number;
}

export interface Disk {
  /** A new, empty file. @throws EEXIST, ENOENT when the folder is not there, ENOSPC */
  create(file: string): Promise<DiskFile>;
  /** Gives the file another name in the same folder, replacing what has it. */
  rename(from: string, to: string): Promise<void>;
  /** Gives the file a second name unless that one is taken. @throws EEXIST */
  link(from: string, to: string): Promise<void>;
  /** @throws ENOENT */
  remove(file: string): Promise<void>;
  /** One folder; its parent must be there. Returns whether it was made now. @throws ENOENT */
  makeFolder(folder: string): Promise<boolean>;
  /** @throws ENOTEMPTY, ENOENT */
  removeFolder(folder: string): Promise<void>;
  syncFolder(folder: string): Promise<void>;
  /** Bytes [from, to) of the file; fewer when it ends before. @throws ENOENT */
  read(file: string, from: number, to: number): Promise<Uint8Array>;
  /** @throws ENOENT */
  size(file: string): Promise<number>;
  /** Entries of the folder, in no order. @throws ENOENT, ENOTDIR */
  list(folder: string): Promise<DiskEntry[]>;
}

/** Bytes that are copied out of a file at once. */
const READ_BYTES = 1 << 24;

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  let offset = 0;
  while (offset < bytes.length) offset += (await file.write(bytes, offset, bytes.length - offset)).bytesWritten;
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;

/** The file system of this machine. Files are for their owner alone (0600): weights are nobody else's business. */
export const nodeDisk: Disk = {
  async create(file) {
    const handle = await open(file, 'wx', 0o600);
    return { write: (bytes) => writeAll(handle, bytes), sync: () => handle.sync(), close: () => handle.close() };
  },
  rename,
  link,
  remove: unlink,
  async makeFolder(folder) {
    try {
      await mkdir(folder, 0o700);
      return true;
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
      if (!(await stat(folder)).isDirectory()) throw Object.assign(new Error(`${folder} is no folder`), { code: 'ENOTDIR' });
      return false;
    }
  },
  removeFolder: rmdir,
  async syncFolder(folder) {
    const handle = await open(folder, 'r');
    await handle.sync().finally(() => handle.close());
  },
  async read(file, from, to) {
    const handle = await open(file, 'r');
    try {
      const end = Math.min(to, (await handle.stat()).size);
      if (end <= from) return new Uint8Array(0);
      const bytes = new Uint8Array(end - from);
      let filled = 0;
      while (filled < bytes.length) {
        const { bytesRead } = await handle.read(bytes, filled, Math.min(READ_BYTES, bytes.length - filled), from + filled);
        if (bytesRead === 0) return bytes.subarray(0, filled);
        filled += bytesRead;
      }
      return bytes;
    } finally {
      await handle.close();
    }
  },
  size: async (file) => (await stat(file)).size,
  async list(folder) {
    const entries = await readdir(folder, { withFileTypes: true });
    const found = await Promise.all(
      entries.map(async (entry): Promise<DiskEntry[]> => {
        if (entry.isDirectory()) return [{ name: entry.name, isFolder: true, bytes: 0, modifiedAtMs: 0 }];
        if (!entry.isFile()) return []; // symbolic links, sockets and devices are no objects
        try {
          const { size, mtimeMs } = await stat(path.join(folder, entry.name));
          return [{ name: entry.name, isFolder: false, bytes: size, modifiedAtMs: mtimeMs }];
        } catch (error) {
          if (codeOf(error) === 'ENOENT') return []; // removed since the folder was read
          throw error;
        }
      }),
    );
    return found.flat();
  },
};
