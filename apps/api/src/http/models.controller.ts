/** Weights of other programs over REST, for `weights.upload` of a run spec. */
import type { Readable } from 'node:stream';
import { Body, Controller, Head, Headers, Param, Put, Res } from '@nestjs/common';
import type { FastifyReply } from 'fastify';
import { Fault } from '../fault.js';
import { CurrentViewer } from '../graphql/viewer.decorator.js';
import { WeightUploads } from '../models/weight-uploads.js';
import type { Viewer } from '../teams/authentication.js';
import { contentLengthOf } from './uploads.js';

@Controller('api/v1/models')
export class ModelsController {
  constructor(private readonly uploads: WeightUploads) {}

  @Head('weights/:sha256')
  async has(@CurrentViewer() viewer: Viewer, @Param('sha256') sha256: string, @Res() reply: FastifyReply): Promise<void> {
    if (!(await this.uploads.has(viewer, sha256))) throw new Fault('NOT_FOUND', 'There are no uploaded weights with this hash.');
    await reply.headers({ 'cache-control': 'no-store' }).send();
  }

  /** 201: it is stored. 200: it was there already. */
  @Put('weights/:sha256')
  async upload(
    @CurrentViewer() viewer: Viewer,
    @Param('sha256') sha256: string,
    @Headers('content-length') length: string | undefined,
    @Body() body: Readable,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const what = await this.uploads.put(viewer, sha256, contentLengthOf(length), body);
    await reply.status(what === 'stored' ? 201 : 200).send({ sha256 });
  }
}
