/**
 * The specs of runs, as they are asked for. A spec may have megabytes, and as objects several times as much, so a request is given so many bytes of
 * them and no more, and so are all requests together until they are answered.
 */
import { Injectable } from '@nestjs/common';
import { Batch } from '../database/batch.js';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import type { Run } from './run.types.js';

/** Of one request: some thousand usual specs, or four of the largest. */
const OF_A_REQUEST = 8 << 20;
const OF_ALL_REQUESTS = 16 << 20;
/** Read by one statement. */
const AT_ONCE = 10;

/** Who asks, as long as that lasts. */
export interface Asking {
  /** Of an HTTP request. */
  readonly reply?: { readonly raw: { once(event: 'close', heard: () => void): unknown } };
}

@Injectable()
export class RunSpecs {
  private readonly asked = new WeakMap<Asking, { bytes: number }>();
  private inUse = 0;
  private readonly batch: Batch<string, { id: string; spec: unknown }>;

  constructor(database: Database) {
    const read = (ids: readonly string[]): Promise<{ id: string; spec: unknown }[]> =>
      database.run.findMany({ where: { id: { in: [...ids] } }, select: { id: true, spec: true } });
    this.batch = new Batch(read, { ofKey: (id) => id, ofRow: ({ id }) => id }, AT_ONCE);
  }

  /** @throws Fault INVALID_INPUT when the request has asked for too many, TOO_BUSY when all together have */
  async of({ id, row, created }: Run, asking: Asking): Promise<unknown> {
    if (created) return created.spec;
    this.take(row.specBytes, asking);
    const [found] = await this.batch.load(id);
    if (!found) throw new Fault('NOT_FOUND', 'There is no run with this id.');
    return found.spec;
  }

  private take(bytes: number, asking: Asking): void {
    const { reply } = asking;
    const taken = this.asked.get(asking) ?? { bytes: 0 };
    if (taken.bytes > 0 && taken.bytes + bytes > OF_A_REQUEST)
      throw new Fault(
        'INVALID_INPUT',
        `The specs of these runs have more than ${OF_A_REQUEST >> 20} MiB. Ask for the \`spec\` of fewer runs at a time, or for \`shortSpec\`, which leaves out what is large.`,
      );
    if (reply && this.inUse > 0 && this.inUse + bytes > OF_ALL_REQUESTS)
      throw new Fault('TOO_BUSY', 'Many large specs are being sent. Ask for fewer at a time, and try again shortly.', 1);
    if (reply && !this.asked.has(asking)) reply.raw.once('close', () => (this.inUse -= taken.bytes));
    this.asked.set(asking, taken);
    taken.bytes += bytes;
    if (reply) this.inUse += bytes;
  }
}
