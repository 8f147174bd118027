/** A few rows of a version, for people. */
import { Injectable } from '@nestjs/common';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';
import { DatasetPreview } from './dataset.types.js';
import { Datasets } from './datasets.js';
import type { PreviewRequest } from './shown-rows.js';

@Injectable()
export class Preview {
  constructor(private readonly datasets: Datasets) {}

  /** @throws Fault INVALID_INPUT, NOT_FOUND, TOO_BUSY, TOO_LARGE, SERVICE_UNAVAILABLE */
  async of(viewer: Viewer, versionId: string, request: PreviewRequest): Promise<DatasetPreview> {
    const shown = await this.datasets.ask(viewer.teamId, versionId, 'preview', request);
    if (!shown) throw new Fault('NOT_FOUND', 'There is no such version.');
    return Object.assign(new DatasetPreview(), shown);
  }
}
