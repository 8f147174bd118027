/**
 * The process in which the api converts a source into shards: `fork`ed for one import, with a limit on its memory, no access to PostgreSQL and
 * none of the secrets of the api. It writes shards to the data store itself and asks the api, which keeps the tables, before and after each:
 *
 *     <- begin    -> announce, <- go | present | refused    -> stored    -> progress    -> done | failed
 *
 * Uploaded files are fetched into a folder of its own first; nothing else of this machine may be read by it.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { datasetShardKey } from '@paceline/spec';
import { openStore } from '@paceline/storage';
import { importDataset, type ImportOptions } from '@paceline/ingest';

export interface BeginImport {
  readonly kind: 'begin';
  readonly storeUrl: string;
  readonly teamId: string;
  /** A folder that is its own; the api removes it afterwards. */
  readonly folder: string;
  /** Addresses, unless there are uploads. */
  readonly sources: readonly string[];
  /** Hosts of addresses; left out, every public one. */
  readonly allowedHosts?: readonly string[] | undefined;
  readonly uploads: readonly { readonly key: string; readonly fileName: string }[];
  readonly options: Omit<ImportOptions, 'sources' | 'policy' | 'access'>;
}
export type ToImport =
  | BeginImport
  | { readonly kind: 'answer'; readonly n: number; readonly answer: 'go' | 'present' | 'stored' | 'refused'; readonly message?: string };
export type FromImport =
  | {
      readonly kind: 'asked';
      readonly n: number;
      readonly what: 'has' | 'announce' | 'stored';
      readonly sha256: string;
      readonly bytes: number;
    }
  | { readonly kind: 'progress'; readonly rows: number; readonly bytes: number; readonly totalBytes: number | null }
  | { readonly kind: 'done'; readonly manifest: string; readonly warnings: readonly string[] }
  | { readonly kind: 'failed'; readonly message: string; readonly isOfUser: boolean };

const PROGRESS_EVERY_MS = 500;
/** What one import may take of the disk and the time of the api; a larger source is imported from a machine of its owner. */
const LIMITS = { sourceBytes: 20 * 2 ** 30, unpackedBytes: 20 * 2 ** 30 };

class Refused extends Error {}

const waiting = new Map<number, (reply: Extract<ToImport, { kind: 'answer' }>) => void>();
let asked = 0;

const tell = (message: FromImport): Promise<void> =>
  new Promise((resolve, reject) => process.send!(message, undefined, {}, (error) => (error ? reject(error) : resolve())));

async function ask(what: 'has' | 'announce' | 'stored', sha256: string, bytes: number): Promise<'go' | 'present' | 'stored'> {
  const n = ++asked;
  const reply = new Promise<Extract<ToImport, { kind: 'answer' }>>((resolve) => waiting.set(n, resolve));
  await tell({ kind: 'asked', n, what, sha256, bytes });
  const { answer, message } = await reply;
  waiting.delete(n);
  if (answer === 'refused') throw new Refused(message ?? 'it was refused');
  return answer;
}

async function run(begin: BeginImport): Promise<void> {
  const store = openStore(begin.storeUrl);
  const [fetched, workFolder] = [path.join(begin.folder, 'uploads'), path.join(begin.folder, 'work')];
  for (const made of [fetched, workFolder]) await mkdir(made);
  const sources = begin.uploads.length > 0 ? await fetchUploads(begin, fetched) : begin.sources;
  let shownAtMs = 0;
  let latest: Extract<FromImport, { kind: 'progress' }> | undefined;
  const { manifest, warnings } = await importDataset(
    Object.assign({}, begin.options, {
      sources,
      policy: 'server' as const,
      limits: LIMITS,
      access: { allowedFolders: [fetched], allowedHosts: begin.allowedHosts },
    }),
    {
      has: async (sha256) => (await ask('has', sha256, 0)) === 'present',
      put: async (sha256, bytes) => {
        if (createHash('sha256').update(bytes).digest('hex') !== sha256) throw new Error(`a shard was given the wrong hash ${sha256}`);
        if ((await ask('announce', sha256, bytes.length)) === 'present') return;
        await store.put(datasetShardKey(begin.teamId, sha256), [bytes]);
        await ask('stored', sha256, bytes.length);
      },
    },
    {
      workFolder,
      onProgress: ({ rows, bytesRead, bytesTotal }) => {
        latest = { kind: 'progress', rows, bytes: bytesRead, totalBytes: bytesTotal ?? null };
        if (Date.now() - shownAtMs < PROGRESS_EVERY_MS) return;
        shownAtMs = Date.now();
        void tell(latest);
      },
    },
  );
  if (latest) await tell(latest);
  const said = warnings.map((warning) => withoutFolders(warning, begin));
  await tell({ kind: 'done', manifest: JSON.stringify(manifest), warnings: said });
}

async function fetchUploads({ storeUrl, uploads }: BeginImport, folder: string): Promise<string[]> {
  const store = openStore(storeUrl);
  const files: string[] = [];
  for (const [i, { key, fileName }] of uploads.entries()) {
    // Two of them may have one name.
    const own = path.join(folder, String(i));
    await mkdir(own);
    const file = path.join(own, shortName(path.basename(fileName)));
    await pipeline(Readable.from(store.stream(key)), createWriteStream(file, { flags: 'wx', mode: 0o600 }));
    files.push(file);
  }
  return files;
}

const NAME_MAX_BYTES = 200;

/** As a file system takes it: its end, which says the format, stays. */
function shortName(name: string): string {
  if (Buffer.byteLength(name) <= NAME_MAX_BYTES) return name;
  const characters = [...name];
  while (Buffer.byteLength(characters.join('')) > NAME_MAX_BYTES) characters.shift();
  return characters.join('').replace(/^\.+/, '');
}

/** Uploads by the names that they were sent under, not by where they lie. */
const withoutFolders = (message: string, { folder, uploads }: BeginImport): string =>
  uploads.reduce((text, _, i) => text.replaceAll(path.join(folder, 'uploads', String(i)) + path.sep, ''), message);

/** What a person can mend has a code and a sentence; the rest is a fault of ours, and its words stay in the log. */
const isOfUser = (error: unknown): boolean =>
  error instanceof Refused || ['IngestError', 'StorageError'].includes((error as Error | undefined)?.name ?? '');

process.on('message', (message: ToImport) => {
  if (message.kind === 'answer') return waiting.get(message.n)?.(message);
  run(message)
    .catch((error: unknown) => {
      const text = (error as Error).message ?? String(error);
      return tell({ kind: 'failed', message: withoutFolders(text, message), isOfUser: isOfUser(error) });
    })
    .then(() => process.disconnect())
    .catch(() => process.exit(1)); // the api is gone
});
process.on('disconnect', () => process.exit(0));
