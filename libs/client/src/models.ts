/** Weights of other programs over the api, for runs that begin with them: `importModel` of @paceline/models makes a file of them. */
import { sha256 as sha256Of } from '#platform';
import { forTransfer, headOf, sendBytes, whileBusy, type HttpOptions } from './http.js';

export interface UploadedWeights {
  /** For `weights.upload` of a run spec, within a day. */
  readonly sha256: string;
  readonly bytes: number;
}

/** All methods throw PacelineApiError. */
export class ModelsClient {
  readonly #http: HttpOptions;

  constructor(http: HttpOptions) {
    this.#http = http;
  }

  /** @param file safetensors, with the variables of a model as float32 under their paths; sent when the api does not have it */
  async upload(file: Uint8Array, { signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<UploadedWeights> {
    const sha256 = await sha256Of(file);
    const path = `/api/v1/models/weights/${sha256}`;
    const isThere = await headOf(this.#http, path);
    if (!isThere) await whileBusy(() => sendBytes(forTransfer(this.#http), 'PUT', path, file, 'application/octet-stream', signal));
    return { sha256, bytes: file.length };
  }
}
