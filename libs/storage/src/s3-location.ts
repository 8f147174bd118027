/** Where an S3 store is, how its client is set up, and what its failures mean. */
import type { S3ClientConfig } from '@aws-sdk/client-s3';
import { StorageError } from './errors.js';
import { isKeySegment } from './object-store.js';

export interface S3Location {
  readonly bucket: string;
  /** Prefix of all keys, without slashes at its ends; may be empty. */
  readonly prefix: string;
  readonly endpoint: string | undefined;
  readonly region: string | undefined;
  /** The bucket in the path instead of the host name: what most servers other than AWS want. */
  readonly forcePathStyle: boolean;
}

const PARAMETERS = new Set(['endpoint', 'region', 'forcePathStyle']);
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;

/**
 * `s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1&forcePathStyle=true`. With an endpoint, path style is the default.
 * @param isForeign the path is that of an object which others have named: any key, with % before what a URL writes so
 * @throws StorageError STORE_URL_INVALID; the message repeats no credentials
 */
export function parseS3Url(url: string, isForeign = false): S3Location {
  const refuse = (why: string): never => {
    throw new StorageError('STORE_URL_INVALID', why);
  };
  if (/\/\.\.?(\/|\?|$)/.test(url)) refuse('the address of the store has a . or .. in its path');
  if (!URL.canParse(url)) refuse('the address of the store is no URL');
  const parsed = new URL(url);
  if (parsed.username !== '' || parsed.password !== '' || parsed.port !== '' || parsed.hash !== '')
    refuse('an s3:// address has no credentials, port or fragment: credentials come from the AWS_* variables, a port belongs to endpoint=');
  if (!BUCKET.test(parsed.hostname)) refuse(`${JSON.stringify(parsed.hostname)} is no name of a bucket`);
  const path = parsed.pathname.replaceAll(/^\/+|\/+$/g, '');
  const prefix = isForeign ? decoded(path) : path;
  const isKey = isForeign ? isForeignSegment : isKeySegment;
  if (prefix === undefined || (prefix !== '' && !prefix.split('/').every(isKey))) refuse(`${JSON.stringify(path)} is no prefix of keys`);
  for (const name of parsed.searchParams.keys())
    if (!PARAMETERS.has(name)) refuse(`${JSON.stringify(name)} is unknown; an s3:// address takes ${[...PARAMETERS].join(', ')}`);
  const endpoint = parsed.searchParams.get('endpoint') ?? undefined;
  if (endpoint !== undefined && !/^https?:\/\//.test(URL.canParse(endpoint) ? endpoint : ''))
    refuse('endpoint= is no http:// or https:// URL');
  const style = parsed.searchParams.get('forcePathStyle');
  if (style !== null && !['', 'true', 'false'].includes(style)) refuse('forcePathStyle= is true or false');
  return {
    bucket: parsed.hostname,
    prefix: prefix!,
    endpoint,
    region: parsed.searchParams.get('region') ?? (endpoint === undefined ? undefined : 'us-east-1'),
    forcePathStyle: style === null ? endpoint !== undefined : style !== 'false',
  };
}

const isForeignSegment = (name: string): boolean => name !== '.' && name !== '..' && !/\p{Cc}/u.test(name);

/** Undefined for what is no UTF-8. */
function decoded(path: string): string | undefined {
  try {
    return decodeURIComponent(path.replace(/%(?![0-9a-f]{2})/gi, '%25'));
  } catch {
    return undefined; // told with the address
  }
}

/**
 * Retries with back-off, and deadlines for connecting and for silence. Checksum trailers are sent only where S3 asks for them: many
 * S3-compatible servers refuse them, and the signature covers the payload's SHA-256 anyway.
 */
export function clientSettings({ endpoint, region, forcePathStyle }: S3Location): S3ClientConfig {
  return {
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(region === undefined ? {} : { region }),
    forcePathStyle,
    maxAttempts: 5,
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: 5000, requestTimeout: 30_000, throwOnRequestTimeout: true },
  };
}

const FULL = /^(QuotaExceeded|XMinioStorageFull|XMinioAdminBucketQuotaExceeded|EntityTooLarge|InsufficientStorage)$/;
const FORBIDDEN = /^(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|CredentialsProviderError|TokenProviderError)$/;

/** @param at what was asked for, and where: part of the message */
export function translatedS3Error(at: string, error: unknown): StorageError {
  if (error instanceof StorageError) return error;
  const { name = '', message = '', $metadata } = error as Partial<Error> & { $metadata?: { httpStatusCode?: number } };
  const status = $metadata?.httpStatusCode;
  const cause = { cause: error };
  if (status === 412 || name === 'PreconditionFailed') return new StorageError('ALREADY_EXISTS', `there is an object ${at} already`, cause);
  if (name === 'NoSuchBucket') return new StorageError('STORE_UNAVAILABLE', `${at}: there is no such bucket`, cause);
  if (status === 404) return new StorageError('NO_SUCH_OBJECT', `there is no object ${at}`, cause);
  if (FULL.test(name) || status === 507) return new StorageError('DISK_FULL', `no room to write ${at} (${name})`, cause);
  if (FORBIDDEN.test(name) || status === 401 || status === 403)
    return new StorageError('STORE_FORBIDDEN', `no right to use ${at} (${name}: ${message})`, cause);
  return new StorageError('STORE_UNAVAILABLE', `${at}: ${name} ${message}`.trim(), cause);
}
