/** Datasets that runs can name. What they are comes from libs/data; the rows in PostgreSQL are what runs refer to. */
import { Injectable } from '@nestjs/common';
import { datasetInfo } from '@paceline/data';
import { DATASETS } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Dataset } from './dataset.types.js';

@Injectable()
export class Datasets {
  constructor(private readonly database: Database) {}

  /** At the start of the api: the rows follow the release. */
  async register(): Promise<void> {
    for (const name of DATASETS) {
      const { title, trainExamples, evalExamples, inputShape, classes, license, source } = datasetInfo(name);
      const data = { title, trainExamples, evalExamples, inputShape: [...inputShape], classes, license, source };
      await this.database.dataset.upsert({ where: { name }, create: { name, ...data }, update: data });
    }
  }

  async list(): Promise<Dataset[]> {
    return (await this.database.dataset.findMany({ orderBy: { name: 'asc' }, take: 1000 })).map(toDataset);
  }

  async find(name: string): Promise<Dataset | null> {
    const row = await this.database.dataset.findUnique({ where: { name } });
    return row && toDataset(row);
  }
}

const toDataset = (row: Omit<Dataset, 'id'>): Dataset => Object.assign(new Dataset(), row, { id: row.name });
