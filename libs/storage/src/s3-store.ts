/**
 * The object store in an S3 bucket, or in anything that speaks S3 with conditional writes. An object appears whole when its PUT
 * (or the completion of its multipart upload) is answered; `ifAbsent` is `If-None-Match: *`, decided by the server.
 *
 * Memory of a write: one part, whatever the size of the object. Every request has a deadline that spans its retries, so a silent
 * endpoint fails a write instead of hanging it. A PUT that is tried again because its answer was lost may find its own object and
 * say ALREADY_EXISTS; whoever puts with `ifAbsent` compares what is there (as `Checkpoints.publish` does). A completion that is tried
 * again finds that its upload is gone; the name of the upload in the object's metadata says whether this writer completed it.
 *
 * The client is loaded at first use: a process with a local store does not pay for it.
 */
import { createHash, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { S3Client } from '@aws-sdk/client-s3';
import { StorageError } from './errors.js';
import {
  checkKey,
  checkPrefix,
  checkRange,
  checkSignal,
  PIECE_BYTES,
  READ_MAX_BYTES,
  readOrMakeIdentity,
  type ObjectBody,
  type ObjectStore,
  type PutOptions,
  type StoredObject,
} from './object-store.js';
import { clientSettings, translatedS3Error, type S3Location } from './s3-location.js';

type Sdk = typeof import('@aws-sdk/client-s3');

/** S3 wants parts of at least 5 MiB, and at most 10,000 of them; later parts are larger, which makes about 290 GiB per object. */
const PART_BYTES = 8 << 20;
const LATER_PART_BYTES = 32 << 20;
const SMALL_PARTS = 1000;
const REQUEST_DEADLINE_MS = 120_000;
const READ_TRIES = 3;
const CONFLICT_TRIES = 5;
const LIST_PAGES_MAX = 1000;
/** An upload shows when it began, not when it was last heard of, so none younger than a day is taken for dead. */
const UPLOAD_DEAD_MS = 86_400_000;
/** In the metadata of an object that was uploaded in parts: a name that its writer made up. */
const UPLOAD_NAME = 'paceline-upload';

/** Which of the versions of an object is read: that of the first answer. */
export interface ObjectVersion {
  etag: string | undefined;
}

export class S3Store implements ObjectStore {
  readonly kind = 's3';
  readonly place: string;
  private readonly root: string;
  private loaded: Promise<{ sdk: Sdk; client: S3Client }> | undefined;

  constructor(
    private readonly location: S3Location,
    private readonly requestDeadlineMs = REQUEST_DEADLINE_MS,
    private readonly nowMs: () => number = Date.now,
    /** Objects that others have named: whatever a bucket takes is a key to read. */
    private readonly isForeign = false,
  ) {
    this.root = location.prefix === '' ? '' : `${location.prefix}/`;
    this.place = `s3://${location.bucket}/${location.prefix}`;
  }

  identity(): Promise<string> {
    return readOrMakeIdentity(this);
  }

  async put(key: string, body: ObjectBody, options: PutOptions = {}): Promise<{ bytes: number; sha256: string }> {
    checkKey(key);
    checkSignal(key, options.signal);
    const hash = createHash('sha256');
    const upload = new Upload(this, key, options);
    let bytes = 0;
    try {
      for await (const piece of body) {
        checkSignal(key, options.signal);
        hash.update(piece);
        bytes += piece.length;
        await upload.add(piece);
      }
      await upload.finish();
    } catch (error) {
      await upload.abort();
      throw error;
    }
    return { bytes, sha256: hash.digest('hex') };
  }

  read(key: string, from = 0, to = from + READ_MAX_BYTES): Promise<Uint8Array> {
    return this.readOf({ etag: undefined }, key, from, to);
  }

  private async readOf(version: ObjectVersion, key: string, from: number, to: number): Promise<Uint8Array> {
    this.checkKey(key);
    checkRange(key, from, to);
    const last = Math.min(to, from + READ_MAX_BYTES) - 1;
    if (last < from) return new Uint8Array(0);
    for (let tries = 1; ; tries++) {
      try {
        return await this.send(key, async ({ sdk, client }, abortSignal) => {
          const range = { Bucket: this.location.bucket, Key: this.keyOf(key), Range: `bytes=${from}-${last}`, IfMatch: version.etag };
          const { Body: body, ETag: etag } = await client.send(new sdk.GetObjectCommand(range), { abortSignal });
          version.etag ??= etag;
          // Not every server heeds IfMatch.
          if (etag !== version.etag) throw changed(this.place, key);
          return body ? await body.transformToByteArray() : new Uint8Array(0);
        });
      } catch (error) {
        if (statusOf(error) === 412) throw changed(this.place, key, error);
        if (statusOf(error) === 416) return new Uint8Array(0); // the object ends at or before `from`
        // The client tries a request again but not a body that breaks off.
        if (!(error instanceof StorageError) || error.code !== 'STORE_UNAVAILABLE' || tries === READ_TRIES) throw error;
      }
    }
  }

  /**
   * @param version so that several streams are of one version of the object; left out, this one is
   * @throws StorageError OBJECT_CHANGED and what the interface says
   */
  async *stream(key: string, version: ObjectVersion = { etag: undefined }): AsyncIterable<Uint8Array> {
    for (let from = 0; ; from += PART_BYTES) {
      const part = await this.readOf(version, key, from, from + PART_BYTES);
      for (let at = 0; at < part.length; at += PIECE_BYTES) yield part.subarray(at, at + PIECE_BYTES);
      if (part.length < PART_BYTES) return;
    }
  }

  async list(prefix: string): Promise<StoredObject[]> {
    if (!this.isForeign) checkPrefix(prefix);
    const found: StoredObject[] = [];
    let token: string | undefined;
    for (let pages = 0; pages < LIST_PAGES_MAX; pages++) {
      const page = await this.send(prefix, ({ sdk, client }, abortSignal) =>
        client.send(new sdk.ListObjectsV2Command({ Bucket: this.location.bucket, Prefix: this.root + prefix, ContinuationToken: token }), {
          abortSignal,
        }),
      );
      for (const { Key: key, Size: bytes } of page.Contents ?? [])
        if (key !== undefined) found.push({ key: key.slice(this.root.length), bytes: bytes ?? 0 });
      token = page.NextContinuationToken;
      if (token === undefined) return found.sort((a, b) => (a.key < b.key ? -1 : 1));
    }
    throw new StorageError('STORE_UNAVAILABLE', `${this.place}/${prefix} has more objects than ${LIST_PAGES_MAX} pages hold`);
  }

  /** One request each: a batch would lose the order, and with it the rule that a manifest goes before its files. */
  async remove(keys: readonly string[]): Promise<void> {
    keys.forEach(checkKey);
    for (const key of keys) {
      await this.send(key, ({ sdk, client }, abortSignal) =>
        client.send(new sdk.DeleteObjectCommand({ Bucket: this.location.bucket, Key: this.keyOf(key) }), { abortSignal }),
      );
    }
  }

  async removeUnfinished(prefix: string, idleMs: number): Promise<number> {
    checkPrefix(prefix);
    const bucket = this.location.bucket;
    const oldest = this.nowMs() - Math.max(idleMs, UPLOAD_DEAD_MS);
    const { Uploads: uploads = [] } = await this.send(prefix, ({ sdk, client }, abortSignal) =>
      client.send(new sdk.ListMultipartUploadsCommand({ Bucket: bucket, Prefix: this.root + prefix }), { abortSignal }),
    );
    const dead = uploads.filter(({ Initiated: initiated }) => initiated !== undefined && initiated.getTime() < oldest);
    for (const { Key, UploadId } of dead) {
      await this.send(prefix, ({ sdk, client }, abortSignal) =>
        client.send(new sdk.AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }), { abortSignal }),
      );
    }
    return dead.length;
  }

  /** Closes the connections that are kept for the next request. */
  async close(): Promise<void> {
    (await this.loaded)?.client.destroy();
  }

  private checkKey(key: string): void {
    if (!this.isForeign) checkKey(key);
  }

  keyOf(key: string): string {
    return this.root + key;
  }

  get bucket(): string {
    return this.location.bucket;
  }

  /** One request with its retries, within the deadline. @throws StorageError */
  async send<T>(
    key: string,
    request: (at: { sdk: Sdk; client: S3Client }, signal: AbortSignal) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    this.loaded ??= import('@aws-sdk/client-s3').then((sdk) => ({ sdk, client: new sdk.S3Client(clientSettings(this.location)) }));
    const deadline = AbortSignal.timeout(this.requestDeadlineMs);
    try {
      return await request(await this.loaded, signal ? AbortSignal.any([signal, deadline]) : deadline);
    } catch (error) {
      checkSignal(key, signal);
      if (deadline.aborted)
        throw new StorageError('STORE_UNAVAILABLE', `${this.place} did not answer for ${key} within ${this.requestDeadlineMs} ms`, {
          cause: error,
        });
      throw translatedS3Error(`${key} in ${this.place}`, error);
    }
  }
}

const changed = (place: string, key: string, cause?: unknown): StorageError =>
  new StorageError('OBJECT_CHANGED', `${key} in ${place} was written again while it was read`, { cause });

const statusOf = (error: unknown): number | undefined =>
  ((error as Error).cause as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;

/**
 * One object on its way: a single PUT when it fits into a part, a multipart upload otherwise. `Upload` of @aws-sdk/lib-storage has `If-None-Match` too,
 * but hands no signal to its requests: after an abort they go on and the parts stay until they are answered, and no request can have a deadline. It
 * also has one size for all parts, and gives up on a 409.
 */
class Upload {
  private buffer = Buffer.allocUnsafe(1 << 16);
  private filled = 0;
  private uploadId: string | undefined;
  private readonly name = randomUUID();
  private readonly parts: { PartNumber: number; ETag: string | undefined }[] = [];

  constructor(
    private readonly store: S3Store,
    private readonly key: string,
    private readonly options: PutOptions,
  ) {}

  private get at(): { Bucket: string; Key: string } {
    return { Bucket: this.store.bucket, Key: this.store.keyOf(this.key) };
  }

  private get partBytes(): number {
    return this.parts.length < SMALL_PARTS ? PART_BYTES : LATER_PART_BYTES;
  }

  /** Copies the piece; sends a part when one is full and there is more. */
  async add(piece: Uint8Array): Promise<void> {
    for (let from = 0; from < piece.length;) {
      if (this.filled === this.partBytes) await this.sendPart();
      const take = Math.min(piece.length - from, this.partBytes - this.filled);
      this.reserve(this.filled + take);
      this.buffer.set(piece.subarray(from, from + take), this.filled);
      this.filled += take;
      from += take;
    }
  }

  async finish(): Promise<void> {
    if (this.uploadId !== undefined) await this.sendPart();
    const condition = this.options.ifAbsent ? { IfNoneMatch: '*' } : {};
    for (let tries = 1; ; tries++) {
      try {
        await this.store.send(
          this.key,
          async ({ sdk, client }, abortSignal): Promise<void> => {
            if (this.uploadId === undefined) {
              const Body = this.buffer.subarray(0, this.filled);
              await client.send(new sdk.PutObjectCommand({ ...this.at, ...condition, Body, ContentLength: this.filled }), { abortSignal });
            } else {
              const whole = { ...this.at, ...condition, UploadId: this.uploadId, MultipartUpload: { Parts: this.parts } };
              await client.send(new sdk.CompleteMultipartUploadCommand(whole), { abortSignal });
            }
          },
          this.options.signal,
        );
        this.uploadId = undefined;
        return;
      } catch (error) {
        if (this.uploadId !== undefined && (statusOf(error) === 404 || statusOf(error) === 412) && (await this.isCompleted())) {
          this.uploadId = undefined;
          return;
        }
        // Another conditional write of the same key is under way: ask again when it is decided.
        if (statusOf(error) !== 409 || this.uploadId !== undefined || tries === CONFLICT_TRIES) throw error;
        await sleep(100 * tries);
      }
    }
  }

  /** The answer to the completion may have been lost: the object is there then, under the name of this upload. */
  private async isCompleted(): Promise<boolean> {
    const found = await this.store
      .send(
        this.key,
        ({ sdk, client }, abortSignal) => client.send(new sdk.HeadObjectCommand(this.at), { abortSignal }),
        this.options.signal,
      )
      .catch(() => undefined); // the error of the completion itself is the one to hear of
    return found?.Metadata?.[UPLOAD_NAME] === this.name;
  }

  /** A part that stays costs money, not correctness; `removeUnfinished` finds it when this fails too. */
  async abort(): Promise<void> {
    if (this.uploadId === undefined) return;
    const at = { ...this.at, UploadId: this.uploadId };
    await this.store
      .send(this.key, ({ sdk, client }, abortSignal) => client.send(new sdk.AbortMultipartUploadCommand(at), { abortSignal }))
      .catch(() => undefined); // the error of the write itself is the one to hear of
  }

  private async sendPart(): Promise<void> {
    const { signal } = this.options;
    this.uploadId ??= await this.store.send(
      this.key,
      async ({ sdk, client }, abortSignal) => {
        const named = new sdk.CreateMultipartUploadCommand({ ...this.at, Metadata: { [UPLOAD_NAME]: this.name } });
        return (await client.send(named, { abortSignal })).UploadId;
      },
      signal,
    );
    const part = { ...this.at, UploadId: this.uploadId, PartNumber: this.parts.length + 1, Body: this.buffer.subarray(0, this.filled) };
    const { ETag } = await this.store.send(
      this.key,
      ({ sdk, client }, abortSignal) => client.send(new sdk.UploadPartCommand(part), { abortSignal }),
      signal,
    );
    this.parts.push({ PartNumber: part.PartNumber, ETag });
    this.filled = 0;
  }

  /** Small objects are many, so the buffer starts small and doubles up to a part. */
  private reserve(bytes: number): void {
    if (bytes <= this.buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.min(this.partBytes, Math.max(bytes, 2 * this.buffer.length)));
    larger.set(this.buffer.subarray(0, this.filled));
    this.buffer = larger;
  }
}
