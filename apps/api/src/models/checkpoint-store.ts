/** The object store in which checkpoints, weights to begin with and predictions of runs lie, as the api sees it. */
import { Inject, Injectable } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { openStore, type ObjectStore } from '@paceline/storage';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { LOGGER } from '../logger.js';
import { storeFault } from '../store-fault.js';

/** For messages: why there is none. */
export const NO_CHECKPOINT_STORE = 'this api has neither PACELINE_CHECKPOINT_STORE nor PACELINE_DATA_DIR';

@Injectable()
export class CheckpointStore {
  private opened: ObjectStore | undefined;

  constructor(
    private readonly settings: Settings,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  get isThere(): boolean {
    return this.place !== undefined;
  }

  /** @throws Fault SERVICE_UNAVAILABLE when the api has none */
  get store(): ObjectStore {
    if (this.place === undefined) throw new Fault('SERVICE_UNAVAILABLE', `This cannot be done here: ${NO_CHECKPOINT_STORE}.`);
    return (this.opened ??= openStore(this.place));
  }

  /** @throws Fault SERVICE_UNAVAILABLE for what the store refuses, NOT_FOUND for an object that is not there; what else the work throws */
  async use<T>(work: (store: ObjectStore) => Promise<T>): Promise<T> {
    try {
      return await work(this.store);
    } catch (error) {
      throw storeFault(error, 'checkpoint store', this.log);
    }
  }

  private get place(): string | undefined {
    return this.settings.checkpointStore ?? this.settings.dataDir;
  }
}
