/**
 * Hands out the weights of a finished run, when the coordinator's host and the api share a data folder. The path comes from a report,
 * so it is believed only if the file, links resolved, lies inside that folder.
 */
import { constants, createReadStream, type ReadStream } from 'node:fs';
import { access, open, realpath } from 'node:fs/promises';
import { resolve, sep } from 'node:path';
import { Injectable } from '@nestjs/common';
import { Settings } from '../environment.js';
import { NotFound } from '../graphql/result.types.js';
import { resultOf } from './run-row.js';
import type { Run } from './run.types.js';

export interface WeightsFile {
  readonly stream: ReadStream;
  readonly bytes: number;
  readonly sha256: string;
}

@Injectable()
export class Weights {
  constructor(private readonly settings: Settings) {}

  async open(run: Run): Promise<WeightsFile | NotFound> {
    const located = await this.locate(run);
    if (located instanceof NotFound) return located;
    const handle = await open(located.path, 'r');
    const { size } = await handle.stat();
    return { stream: createReadStream(located.path, { fd: handle, autoClose: true }), bytes: size, sha256: located.sha256 };
  }

  /** The file with links resolved, inside of the data folder. */
  async locate({ row }: Run): Promise<{ readonly path: string; readonly sha256: string } | NotFound> {
    const result = resultOf(row);
    if (!result?.weightsFile)
      return new NotFound(result ? 'weights file: the spec says checkpoint.final = false' : 'weights file: the run has no result');
    if (this.settings.dataDir === undefined) return new NotFound('weights file on this api: it has no PACELINE_DATA_DIR');
    try {
      const root = await realpath(resolve(this.settings.dataDir));
      const file = await realpath(result.weightsFile);
      if (!file.startsWith(root + sep) || !file.endsWith('.safetensors')) return new NotFound('weights file on this host');
      await access(file, constants.R_OK);
      return { path: file, sha256: result.weightsSha256 };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EACCES')
        return new NotFound('weights file on this host: it lies with the coordinator that wrote it');
      throw error;
    }
  }
}
