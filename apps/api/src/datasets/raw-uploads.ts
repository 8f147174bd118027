/** Files as people have them, uploaded in the dashboard for an import by the api: kept until an import has taken them, at most a day. */
import type { Readable } from 'node:stream';
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';
import { lockTeam, refusedBytes } from '../teams/team-limits.js';
import { uploadTurns } from '../turns.js';
import { readName } from '../text-input.js';
import { DataStore } from './data-store.js';
import { issuesFault } from './manifest-child.js';
import { checked, declaredBytes } from './upload-body.js';

export interface RawUpload {
  readonly id: string;
  readonly fileName: string;
  readonly bytes: number;
}

export const MAX_UPLOAD_BYTES = 10e9;
const MAX_UPLOADS = 1000;

export const uploadKey = (teamId: string, id: string): string => `datasets/${teamId}/uploads/${id}`;

@Injectable()
export class RawUploads {
  private readonly turns = uploadTurns();

  constructor(
    private readonly database: Database,
    private readonly data: DataStore,
    private readonly settings: Settings,
  ) {}

  /** @throws Fault INVALID_INPUT, LIMIT_REACHED, TOO_LARGE, TOO_BUSY, SERVICE_UNAVAILABLE */
  async store(viewer: Viewer, givenName: string, declared: number | undefined, body: Readable): Promise<RawUpload> {
    const { name: fileName, issues } = readName('name', givenName);
    if (/[/\\]/.test(fileName) || /^\.+$/.test(fileName))
      issues.push({ path: 'name', message: 'must be the name of a file, without folders' });
    if (issues.length > 0) throw issuesFault(issues);
    const bytes = declaredBytes(declared, MAX_UPLOAD_BYTES);
    const store = this.data.store;
    const { teamId } = viewer;
    return this.turns.run(teamId, async () => {
      const { id } = await this.database.transact(async (transaction) => {
        await lockTeam(transaction, teamId);
        const refused = await refusedBytes(transaction, teamId, this.settings, bytes);
        if (refused) throw new Fault('LIMIT_REACHED', refused.message);
        if ((await transaction.datasetUpload.count({ where: { teamId } })) >= MAX_UPLOADS)
          throw new Fault('CONFLICT', `The team has ${MAX_UPLOADS} uploads that wait for an import; import or wait a day.`);
        return transaction.datasetUpload.create({ data: { teamId, fileName, bytes: BigInt(bytes) } });
      });
      try {
        const { sha256 } = await this.data.use(() => store.put(uploadKey(teamId, id), checked(body, bytes)));
        await this.database.datasetUpload.update({ where: { id }, data: { isComplete: true, sha256, touchedAt: new Date() } });
      } catch (error) {
        await this.database.datasetUpload.deleteMany({ where: { id } });
        throw error;
      }
      return { id, fileName, bytes };
    });
  }
}
