/**
 * Files of this machine: a path, a folder with all below it, or a glob; in the order of their names.
 * With policy server a path must lie below an allowed folder after all links are resolved, and links inside of a folder are refused.
 */
import { constants } from 'node:fs';
import { lstat, open, readdir, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { glob } from 'tinyglobby';
import type { SplitName } from '@paceline/spec';
import { IngestError } from '../ingest-error.js';
import { inNameOrder } from './name-order.js';
import type { SourceContext, SourceFile } from './source-file.js';

const READ_BYTES = 1 << 20;
const DEPTH_MAX = 32;
const MAGIC = /[*?{[]/;

/** @throws IngestError SOURCE_NOT_FOUND, SOURCE_FORBIDDEN, SOURCE_UNREADABLE, SOURCE_TOO_LARGE */
export async function localFiles(location: string, split: SplitName | undefined, context: SourceContext): Promise<SourceFile[]> {
  const named = location.startsWith('file:') ? pathOfUrl(location) : location;
  const found = await stat(named).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR' || error.code === 'ENAMETOOLONG') return undefined;
    throw new IngestError('SOURCE_UNREADABLE', `${error.code ?? 'error'}.`, { file: location }, { cause: error });
  });
  const isServer = context.options.policy === 'server';
  if (isServer) await checkAllowed(named, location, context);
  if (found?.isFile()) return [await localFile(named, location, path.basename(named), split, context)];
  if (found?.isDirectory()) {
    const files: string[] = [];
    await addFilesBelow(named, '', context, 0, files);
    return await Promise.all(
      files.map((relative) => localFile(path.join(named, relative), path.posix.join(location, relative), relative, split, context)),
    );
  }
  if (found) throw new IngestError('SOURCE_FORBIDDEN', 'This is neither a file nor a folder.', { file: location });
  const matches = !isServer && MAGIC.test(named) ? await glob(named, { absolute: false, onlyFiles: true, followSymbolicLinks: false }) : [];
  if (matches.length === 0) throw new IngestError('SOURCE_NOT_FOUND', 'No file has this name.', { file: location });
  checkFileCount(matches.length, location, context);
  const base = baseOf(named);
  return await Promise.all(matches.sort(inNameOrder).map((match) => localFile(match, match, relativeTo(base, match), split, context)));
}

/** The folders in front of a pattern: those behind say the class of a picture, as in a folder that is imported. */
function baseOf(pattern: string): string {
  const parts = pattern.split('/');
  const first = parts.findIndex((part) => MAGIC.test(part));
  return parts.slice(0, first).join('/') || (pattern.startsWith('/') ? '/' : '.');
}

const relativeTo = (base: string, file: string): string => path.relative(base, file).split(path.sep).join('/');

/** A file that another one names. @throws IngestError SOURCE_NOT_FOUND, SOURCE_FORBIDDEN, SOURCE_UNREADABLE, SOURCE_TOO_LARGE */
export async function fileBeside(table: string, named: string, context: SourceContext): Promise<SourceFile> {
  if (named.includes('\0')) throw new IngestError('SOURCE_NOT_FOUND', 'The path has a zero byte in it.', {});
  const file = path.resolve(path.dirname(table), named);
  if (context.options.policy === 'server') await checkAllowed(file, named, context);
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw new IngestError('SOURCE_NOT_FOUND', `It cannot be read (${error.code ?? 'error'}).`, { file: named }, { cause: error });
  });
  if (!found.isFile()) throw new IngestError('SOURCE_FORBIDDEN', 'This is no file.', { file: named });
  return await localFile(file, named, path.basename(file), undefined, context);
}

function pathOfUrl(location: string): string {
  try {
    return fileURLToPath(location);
  } catch (error) {
    throw new IngestError('SOURCE_NOT_FOUND', 'This is no file:// address of this machine.', { file: location }, { cause: error });
  }
}

async function checkAllowed(named: string, location: string, context: SourceContext): Promise<void> {
  const folders = context.options.access.allowedFolders ?? [];
  // What does not exist is answered like what may not be read.
  const real = await realpath(named).catch(() => undefined);
  for (const folder of real === undefined ? [] : folders) {
    const root = await realpath(folder).catch(() => undefined); // a folder that is not there allows nothing
    if (root !== undefined && (real === root || real!.startsWith(root.endsWith(path.sep) ? root : root + path.sep))) return;
  }
  throw new IngestError('SOURCE_FORBIDDEN', 'The path lies in no folder that may be read.', { file: location });
}

/** One list takes them all: a folder may have more files than a call may have arguments. */
async function addFilesBelow(folder: string, below: string, context: SourceContext, depth: number, found: string[]): Promise<void> {
  if (depth > DEPTH_MAX) throw new IngestError('SOURCE_TOO_LARGE', `Folders are nested more than ${DEPTH_MAX} deep.`, { file: folder });
  const entries = await readdir(path.join(folder, below), { withFileTypes: true });
  entries.sort((a, b) => inNameOrder(a.name, b.name));
  for (const entry of entries) {
    // What begins with a dot belongs to an editor or a file manager.
    if (entry.name.startsWith('.')) continue;
    const relative = below === '' ? entry.name : `${below}/${entry.name}`;
    if (entry.isDirectory()) await addFilesBelow(folder, relative, context, depth + 1, found);
    else if (entry.isFile()) found.push(relative);
    else if (entry.isSymbolicLink() && context.options.policy === 'user') {
      const target = await stat(path.join(folder, relative)).catch(() => undefined); // a link that leads nowhere is no file
      if (target?.isFile()) found.push(relative);
    } else throw new IngestError('SOURCE_FORBIDDEN', 'The folder has a link or a device in it.', { file: relative });
    checkFileCount(found.length, folder, context);
  }
}

function checkFileCount(files: number, location: string, { options }: SourceContext): void {
  if (files > options.limits.files)
    throw new IngestError('SOURCE_TOO_LARGE', `More than ${options.limits.files} files.`, { file: location });
}

async function localFile(
  file: string,
  name: string,
  relative: string,
  split: SplitName | undefined,
  context: SourceContext,
): Promise<SourceFile> {
  const { size } = await lstat(await realpath(file));
  const { limits } = context.options;
  if (size > limits.sourceBytes)
    throw new IngestError('SOURCE_TOO_LARGE', `The file has ${size} bytes; at most ${limits.sourceBytes} are read.`, { file: name });
  return { name, relative, split, bytes: size, path: file, open: () => readPieces(file, name, size, context) };
}

async function* readPieces(file: string, name: string, size: number, context: SourceContext): AsyncGenerator<Uint8Array> {
  const noFollow = context.options.policy === 'server' ? constants.O_NOFOLLOW : 0;
  const handle = await open(file, constants.O_RDONLY | noFollow).catch((error: NodeJS.ErrnoException) => {
    throw new IngestError('SOURCE_UNREADABLE', `${error.code ?? 'error'}.`, { file: name }, { cause: error });
  });
  const readFrom = (position: number): Promise<Buffer> => {
    const piece = Buffer.allocUnsafe(READ_BYTES);
    const reading = handle.read(piece, 0, READ_BYTES, position).then(({ bytesRead }) => piece.subarray(0, bytesRead));
    reading.catch(() => undefined); // it is awaited in its turn, unless nobody wants it any more
    return reading;
  };
  try {
    const { mtimeNs } = await handle.stat({ bigint: true });
    let position = 0;
    for (let next = readFrom(0); ;) {
      context.signal?.throwIfAborted();
      const piece = await next;
      if (piece.length === 0) {
        if (position !== size) throw new IngestError('SOURCE_CHANGED', `It had ${size} bytes, and now has ${position}.`, { file: name });
        if ((await handle.stat({ bigint: true })).mtimeNs !== mtimeNs)
          throw new IngestError('SOURCE_CHANGED', 'It was written to while it was read.', { file: name });
        return;
      }
      position += piece.length;
      context.traffic.bytesRead += piece.length;
      next = readFrom(position); // while this piece is worked on
      yield piece;
    }
  } finally {
    await handle.close();
  }
}
