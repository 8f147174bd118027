/**
 * A small S3 server in memory, for tests: PUT, GET (with ranges), HEAD and DELETE of objects, multipart uploads, ListObjectsV2 and
 * ListMultipartUploads, and `If-None-Match: *` on PUT and on the completion of an upload, `If-Match` on GET. One bucket, path style.
 *
 * It asks for a signature by the known access key and holds payloads to the SHA-256 that the signature covers, but does not
 * compute the signature itself. `fault` sees every request first and may break it off, refuse it, or lose its answer.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export const S3_TEST_CREDENTIALS = { AWS_ACCESS_KEY_ID: 'paceline-test', AWS_SECRET_ACCESS_KEY: 'paceline-test-secret' };

export interface S3Request {
  readonly method: string;
  readonly key: string;
  readonly query: URLSearchParams;
}

/** `reset` closes the connection unheard, `silence` never answers, `lose-answer` does the work and closes; a number is a status. */
export type S3Fault = 'none' | 'reset' | 'silence' | 'lose-answer' | number;

/** Headers `x-amz-meta-…`. */
type Metadata = Readonly<Record<string, string>>;

interface Multipart {
  readonly key: string;
  readonly parts: Map<number, Buffer>;
  readonly metadata: Metadata;
  initiatedAt: Date;
}

interface Answer {
  readonly status: number;
  readonly body?: string | Buffer;
  readonly headers?: Record<string, string>;
}

const REQUEST_MAX_BYTES = 64 << 20;
const hashOf = (algorithm: string, bytes: Buffer): string => createHash(algorithm).update(bytes).digest('hex');
const failure = (status: number, code: string): Answer => ({
  status,
  body: xml('Error', `<Code>${code}</Code><Message>${code}</Message>`),
});
const xml = (name: string, inner: string): string => `<?xml version="1.0" encoding="UTF-8"?><${name}>${inner}</${name}>`;

export class S3TestServer {
  readonly objects = new Map<string, Buffer>();
  private readonly metadata = new Map<string, Metadata>();
  readonly uploads = new Map<string, Multipart>();
  readonly requests: S3Request[] = [];
  /** Largest body of one request. */
  largestBodyBytes = 0;
  pageObjects = 1000;
  fault: (request: S3Request) => S3Fault = () => 'none';

  private constructor(
    private readonly server: Server,
    readonly bucket: string,
  ) {}

  static async start(bucket = 'checkpoints'): Promise<S3TestServer> {
    const server = createServer();
    const s3 = new S3TestServer(server, bucket);
    server.on('request', (request, response) => {
      s3.handle(request, response).catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
    });
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
    return s3;
  }

  /** Address of a store under a prefix of the bucket. */
  url(prefix = ''): string {
    const endpoint = encodeURIComponent(`http://127.0.0.1:${(this.server.address() as AddressInfo).port}`);
    return `s3://${this.bucket}/${prefix}?endpoint=${endpoint}&region=us-east-1&forcePathStyle=true`;
  }

  async stop(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://s3');
    const [, bucket = '', ...rest] = url.pathname.split('/');
    const asked: S3Request = { method: request.method ?? '', key: rest.map(decodeURIComponent).join('/'), query: url.searchParams };
    this.requests.push(asked);
    const fault = this.fault(asked);
    if (fault === 'reset') return void request.socket.destroy();
    const body = await bodyOf(request);
    this.largestBodyBytes = Math.max(this.largestBodyBytes, body.length);
    if (fault === 'silence') return;
    if (typeof fault === 'number') return this.send(response, failure(fault, fault === 503 ? 'SlowDown' : 'InternalError'));
    const refusal = refused(request, body) ?? (bucket === this.bucket ? undefined : failure(404, 'NoSuchBucket'));
    const answer = refusal ?? this.answer(asked, request, body);
    if (fault === 'lose-answer') return void request.socket.destroy();
    this.send(response, answer);
  }

  private send(response: ServerResponse, { status, body = '', headers = {} }: Answer): void {
    response.writeHead(status, { 'content-length': Buffer.byteLength(body), ...headers }).end(body);
  }

  private answer(asked: S3Request, request: IncomingMessage, body: Buffer): Answer {
    const { method, key, query } = asked;
    const isConditional = request.headers['if-none-match'] === '*';
    if (key === '' && query.has('uploads')) return this.listUploads(query.get('prefix') ?? '');
    if (key === '') return this.listObjects(query);
    if (query.has('uploads') || query.has('uploadId')) return this.multipart(asked, request, body, isConditional);
    if (method === 'PUT') return this.store(key, body, isConditional);
    if (method === 'DELETE') {
      this.objects.delete(key);
      return { status: 204 };
    }
    return this.get(method, key, request.headers.range, request.headers['if-match']);
  }

  private store(key: string, body: Buffer, isConditional: boolean, metadata: Metadata = {}): Answer {
    if (isConditional && this.objects.has(key)) return failure(412, 'PreconditionFailed');
    this.objects.set(key, body);
    this.metadata.set(key, metadata);
    return { status: 200, headers: { etag: `"${hashOf('md5', body)}"` } };
  }

  private get(method: string, key: string, range: string | undefined, match: string | undefined): Answer {
    const object = this.objects.get(key);
    if (!object) return failure(404, 'NoSuchKey');
    const etag = `"${hashOf('md5', object)}"`;
    if (match !== undefined && match !== etag) return failure(412, 'PreconditionFailed');
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    if (first === undefined) return { status: 200, body: method === 'HEAD' ? '' : object, headers: { etag, ...this.metadata.get(key) } };
    if (Number(first) >= object.length) return failure(416, 'InvalidRange');
    const part = object.subarray(Number(first), Number(last) + 1);
    const contentRange = `bytes ${first}-${Number(first) + part.length - 1}/${object.length}`;
    return { status: 206, body: part, headers: { etag, 'content-range': contentRange } };
  }

  private multipart({ method, key, query }: S3Request, { headers }: IncomingMessage, body: Buffer, isConditional: boolean): Answer {
    const id = query.get('uploadId');
    if (id === null) {
      const made = randomUUID();
      const metadata = Object.fromEntries(
        Object.entries(headers).flatMap(([name, value]) => (name.startsWith('x-amz-meta-') ? [[name, String(value)]] : [])),
      );
      this.uploads.set(made, { key, parts: new Map(), metadata, initiatedAt: new Date() });
      return { status: 200, body: xml('InitiateMultipartUploadResult', `<Key>${key}</Key><UploadId>${made}</UploadId>`) };
    }
    const upload = this.uploads.get(id);
    if (!upload || upload.key !== key) return failure(404, 'NoSuchUpload');
    if (method === 'PUT') {
      upload.parts.set(Number(query.get('partNumber')), body);
      return { status: 200, headers: { etag: `"${hashOf('md5', body)}"` } };
    }
    if (method === 'DELETE') {
      this.uploads.delete(id);
      return { status: 204 };
    }
    const parts = [...upload.parts].sort(([a], [b]) => a - b).map(([, part]) => part);
    if (parts.slice(0, -1).some((part) => part.length < 5 << 20)) return failure(400, 'EntityTooSmall');
    const stored = this.store(key, Buffer.concat(parts), isConditional, upload.metadata);
    if (stored.status !== 200) return stored;
    this.uploads.delete(id);
    return { status: 200, body: xml('CompleteMultipartUploadResult', `<Key>${key}</Key><ETag>&quot;x-${parts.length}&quot;</ETag>`) };
  }

  private listObjects(query: URLSearchParams): Answer {
    const after = query.get('continuation-token') ?? '';
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(query.get('prefix') ?? '') && key > after).sort();
    const page = keys.slice(0, this.pageObjects);
    const contents = page.map((key) => `<Contents><Key>${key}</Key><Size>${this.objects.get(key)!.length}</Size></Contents>`).join('');
    const isCut = keys.length > page.length;
    const next = isCut ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : '';
    return { status: 200, body: xml('ListBucketResult', `<IsTruncated>${isCut}</IsTruncated>${next}${contents}`) };
  }

  private listUploads(prefix: string): Answer {
    const found = [...this.uploads].filter(([, { key }]) => key.startsWith(prefix));
    const entries = found.map(
      ([id, { key, initiatedAt }]) =>
        `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${initiatedAt.toISOString()}</Initiated></Upload>`,
    );
    return { status: 200, body: xml('ListMultipartUploadsResult', entries.join('')) };
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    pieces.push(piece);
    if ((bytes += piece.length) > REQUEST_MAX_BYTES) throw new Error(`a request of more than ${REQUEST_MAX_BYTES} bytes`);
  }
  return Buffer.concat(pieces);
}

function refused({ headers }: IncomingMessage, body: Buffer): Answer | undefined {
  const signer = `Credential=${S3_TEST_CREDENTIALS.AWS_ACCESS_KEY_ID}/`;
  if (!/^AWS4-HMAC-SHA256 /.test(headers.authorization ?? '') || !headers.authorization!.includes(signer))
    return failure(403, 'AccessDenied');
  const claimed = headers['x-amz-content-sha256'];
  if (claimed !== hashOf('sha256', body)) return failure(400, 'XAmzContentSHA256Mismatch');
  return undefined;
}
