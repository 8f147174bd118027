/** Opens the store at an address. */
import path from 'node:path';
import { nodeDisk, type Disk } from './disk.js';
import { StorageError } from './errors.js';
import { LocalStore } from './local-store.js';
import type { ObjectStore } from './object-store.js';
import { parseS3Url } from './s3-location.js';
import { S3Store } from './s3-store.js';

/**
 * A folder path, or `s3://bucket/prefix?endpoint=...&region=...&forcePathStyle=true` with credentials from the usual AWS_* variables.
 * @throws StorageError STORE_URL_INVALID
 */
export function openStore(url: string, disk: Disk = nodeDisk): ObjectStore {
  if (/^s3:\/\//i.test(url)) return new S3Store(parseS3Url(url));
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(url)) throw new StorageError('STORE_URL_INVALID', `${url.split('?')[0]}: neither a folder nor s3://`);
  if (url === '') throw new StorageError('STORE_URL_INVALID', 'the address of the store is empty');
  return new LocalStore(path.resolve(url), disk);
}
