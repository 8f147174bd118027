/**
 * The specs of runs, as they are asked for. A spec may have megabytes, and as objects several times as much, so a request is given so many bytes of
 * them and no more, and so are all requests together until they are answered.
 */
import type { ServerResponse } from 'node:http';
import { Injectable } from '@nestjs/common';
import { Batch } from '../database/batch.js';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { whenOver } from '../http/stalled-answers.js';
import type { Run } from './run.types.js';

/** A request may have so many bytes of specs: some thousand usual ones, or four of the largest. A team has as many at a time. */
const OF_A_REQUEST = 8 << 20;
const OF_A_TEAM = OF_A_REQUEST;
const OF_ALL_REQUESTS = 16 << 20;
/** One statement reads so many specs. */
const AT_ONCE = 10;

/** A request or a subscription that asks for specs. */
export interface Asking {
  /** An HTTP request has one: its specs are in memory until the answer is sent. */
  readonly reply?: { readonly raw: ServerResponse };
}

interface Taken {
  bytes: number;
  isOver: boolean;
}

@Injectable()
export class RunSpecs {
  private readonly asked = new WeakMap<Asking, Taken>();
  private inUse = 0;
  private readonly teams = new Map<string, number>();
  private readonly batch: Batch<string, { id: string; spec: unknown }>;

  constructor(database: Database) {
    const read = (ids: readonly string[]): Promise<{ id: string; spec: unknown }[]> =>
      database.rows('run-specs', 'SELECT "id", "spec" FROM "Run" WHERE "id" = ANY($1::uuid[])', [ids]);
    this.batch = new Batch(read, { ofKey: (id) => id, ofRow: ({ id }) => id }, AT_ONCE);
  }

  /** @throws Fault INVALID_INPUT when the request has asked for too many, TOO_BUSY when all together have */
  async of({ id, row, created }: Run, asking: Asking): Promise<unknown> {
    if (created) return created.spec;
    this.take(row.specBytes, row.teamId, asking);
    const [found] = await this.batch.load(id);
    if (!found) throw new Fault('NOT_FOUND', 'There is no run with this id.');
    return found.spec;
  }

  private take(bytes: number, teamId: string, asking: Asking): void {
    const { reply } = asking;
    const taken: Taken = this.asked.get(asking) ?? { bytes: 0, isOver: false };
    if (taken.bytes > 0 && taken.bytes + bytes > OF_A_REQUEST)
      throw new Fault(
        'INVALID_INPUT',
        `The specs of these runs have more than ${OF_A_REQUEST >> 20} MiB. Ask for the \`spec\` of fewer runs at a time, or for \`shortSpec\`, which leaves out what is large.`,
      );
    const isFull = (inUse: number, most: number): boolean => inUse > 0 && inUse + bytes > most;
    if (reply && (isFull(this.ofTeam(teamId), OF_A_TEAM) || isFull(this.inUse, OF_ALL_REQUESTS)))
      throw new Fault('TOO_BUSY', 'Many large specs are being sent. Ask for fewer at a time, and try again shortly.', 1);
    const isFirst = !this.asked.has(asking);
    this.asked.set(asking, taken);
    taken.bytes += bytes;
    if (!reply) return;
    this.use(teamId, bytes);
    if (isFirst) whenOver(reply.raw, () => this.over(taken, teamId));
    else if (taken.isOver) this.use(teamId, -bytes);
  }

  /** The answer is sent, or its client is gone; what is taken for it later counts no more. */
  private over(taken: Taken, teamId: string): void {
    taken.isOver = true;
    this.use(teamId, -taken.bytes);
  }

  private ofTeam(teamId: string): number {
    return this.teams.get(teamId) ?? 0;
  }

  private use(teamId: string, bytes: number): void {
    this.inUse += bytes;
    const ofTeam = this.ofTeam(teamId) + bytes;
    if (ofTeam > 0) this.teams.set(teamId, ofTeam);
    else this.teams.delete(teamId);
  }
}
