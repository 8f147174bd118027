/** Bytes of datasets over REST: shards and raw files in, shards out, and the manifest that makes a version of them. */
import type { Readable } from 'node:stream';
import { Readable as ReadableStream } from 'node:stream';
import { Body, Controller, Get, Head, Headers, HttpCode, Param, Post, Put, Query, Res } from '@nestjs/common';
import { DATASET_LIMITS, parseDatasetReference, datasetReferenceSchema } from '@paceline/spec';
import type { FastifyReply } from 'fastify';
import { CommitVersion } from '../datasets/commit-version.js';
import { DatasetShards } from '../datasets/dataset-shards.js';
import { Datasets } from '../datasets/datasets.js';
import { RawUploads } from '../datasets/raw-uploads.js';
import { RemoveDataset } from '../datasets/remove-dataset.js';
import { declaredBytes, gathered } from '../datasets/upload-body.js';
import { Fault } from '../fault.js';
import { Conflict, NotFound } from '../graphql/result.types.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import { heldTurns } from '../turns.js';
import type { Viewer } from '../teams/authentication.js';
import { contentLengthOf } from './uploads.js';
import type { BodyOf, Dataset, DatasetCommit, DatasetPage, DatasetRemoval, UploadedFile } from './bodies.js';
import type { QueryValues } from './query-parameters.js';
import { endWhenStalled } from './stalled-answers.js';

@Controller('api/v1/datasets')
export class DatasetsController {
  /** Each is in memory, whole, until it is a version. */
  private readonly manifests = heldTurns(4, 16, 'manifests', 5);

  constructor(
    private readonly datasets: Datasets,
    private readonly shards: DatasetShards,
    private readonly commits: CommitVersion,
    private readonly uploads: RawUploads,
    private readonly removals: RemoveDataset,
  ) {}

  @Get()
  async list(@CurrentViewer() viewer: Viewer, @Query() { first, after }: QueryValues): Promise<BodyOf<typeof DatasetPage>> {
    const size = first === undefined ? undefined : /^\d{1,4}$/.test(first) ? Number(first) : Number.NaN;
    const { edges, pageInfo, totalCount } = await this.datasets.list(viewer, { first: size, after });
    return { items: edges.map(({ node }) => node), nextCursor: pageInfo.hasNextPage ? pageInfo.endCursor : null, totalCount };
  }

  @Head('shards/:sha256')
  async has(@CurrentViewer() viewer: Viewer, @Param('sha256') sha256: string, @Res() reply: FastifyReply): Promise<void> {
    const found = await this.shards.find(viewer, sha256);
    if (!found) throw new Fault('NOT_FOUND', 'There is no shard with this hash.');
    await reply.headers({ 'content-length': String(found.bytes), 'cache-control': 'no-store' }).send();
  }

  @Get('shards/:sha256')
  async shard(@CurrentViewer() viewer: Viewer, @Param('sha256') sha256: string, @Res() reply: FastifyReply): Promise<void> {
    const { bytes, stream } = await this.shards.open(viewer, sha256);
    endWhenStalled(reply.raw);
    await reply
      .headers({
        'content-type': 'application/octet-stream',
        'content-length': String(bytes),
        'content-disposition': `attachment; filename="${sha256}.safetensors"`,
        'cache-control': 'private, max-age=31536000, immutable',
        etag: `"${sha256}"`,
      })
      .send(ReadableStream.from(stream));
  }

  /** 201: it is stored. 200: it was there already. */
  @Put('shards/:sha256')
  async upload(
    @CurrentViewer() viewer: Viewer,
    @Param('sha256') sha256: string,
    @Headers('content-length') length: string | undefined,
    @Body() body: Readable,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const what = await this.shards.put(viewer, sha256, contentLengthOf(length), body);
    await reply.status(what === 'stored' ? 201 : 200).send({ sha256 });
  }

  /** A file as it is, for `importDataset`. */
  @Post('uploads')
  @HttpCode(201)
  raw(
    @CurrentViewer() viewer: Viewer,
    @Query() { name }: QueryValues,
    @Headers('content-length') length: string | undefined,
    @Body() body: Readable,
  ): Promise<BodyOf<typeof UploadedFile>> {
    return this.uploads.store(viewer, name ?? '', contentLengthOf(length), body);
  }

  /** The body is the manifest. 201: a new version. 200: the dataset had it already. */
  @Post(':name/versions')
  async commit(
    @CurrentViewer() viewer: Viewer,
    @Param('name') name: string,
    @Query() { source }: QueryValues,
    @Headers('content-length') length: string | undefined,
    @Body() body: Readable,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const bytes = declaredBytes(contentLengthOf(length), DATASET_LIMITS.manifestBytes);
    const { isNew, ...version } = await this.manifests.run(viewer.teamId, async () =>
      this.commits.commit(viewer, { name, manifest: await gathered(body, bytes), source: source ?? '' }),
    );
    await reply.status(isNew ? 201 : 200).send(version satisfies BodyOf<typeof DatasetCommit>);
  }

  @Get(':name')
  async find(@CurrentViewer() viewer: Viewer, @Param('name') name: string): Promise<BodyOf<typeof Dataset>> {
    const found = await this.datasets.find(viewer, name);
    if (!found) throw new Fault('NOT_FOUND', 'There is no such dataset.');
    return found;
  }

  /** The manifest of `name` or `name@version`, as the canonical text whose SHA-256 is the version. */
  @Get(':name/manifest')
  async manifest(@CurrentViewer() viewer: Viewer, @Param('name') reference: string, @Res() reply: FastifyReply): Promise<void> {
    if (!datasetReferenceSchema.safeParse(reference).success) throw new Fault('NOT_FOUND', 'There is no such dataset.');
    const found = await this.datasets.resolve(viewer.teamId, reference);
    if (!('id' in found)) throw new Fault('NOT_FOUND', `${parseDatasetReference(reference).name}: ${found.message}.`);
    endWhenStalled(reply.raw);
    await reply
      .headers({ 'content-type': 'application/json; charset=utf-8', etag: `"${found.version}"`, 'x-dataset-version': found.version })
      .send(ReadableStream.from(await this.shards.openManifest(viewer.teamId, found.version)));
  }

  /** Removes the dataset, or one version of it. */
  @Post(':name/remove')
  @HttpCode(200)
  async remove(
    @CurrentViewer() viewer: Viewer,
    @Param('name') reference: string,
    @Query() { force }: QueryValues,
  ): Promise<BodyOf<typeof DatasetRemoval>> {
    const asked = await this.removals.remove(viewer, reference, yesOrNo('force', force));
    if (asked instanceof NotFound) throw new Fault('NOT_FOUND', asked.message);
    if (asked instanceof Conflict) throw new Fault('CONFLICT', asked.message);
    return asked;
  }
}

/** @throws Fault INVALID_INPUT */
function yesOrNo(name: string, text: string | undefined): boolean {
  if (text === undefined || text === 'true' || text === 'false') return text === 'true';
  throw new Fault('INVALID_INPUT', `${name}: must be true or false`, undefined, [{ path: name, message: 'must be true or false' }]);
}
