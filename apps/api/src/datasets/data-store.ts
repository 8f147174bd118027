/** The object store in which datasets of teams lie, as the api sees it. What goes wrong with it becomes a fault that says what to do. */
import { Inject, Injectable } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { openStore, type ObjectStore } from '@paceline/storage';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { LOGGER } from '../logger.js';
import { storeFault } from '../store-fault.js';

const NO_STORE =
  'This api has no data store, so there are only the built-in datasets. Its administrator sets PACELINE_DATA_STORE for the api and all workers.';

@Injectable()
export class DataStore {
  private opened: ObjectStore | undefined;

  constructor(
    private readonly settings: Settings,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  get isThere(): boolean {
    return this.settings.dataStore !== undefined;
  }

  /** For threads and processes, which open it themselves. @throws Fault SERVICE_UNAVAILABLE when the api has none */
  get url(): string {
    if (this.settings.dataStore === undefined) throw new Fault('SERVICE_UNAVAILABLE', NO_STORE);
    return this.settings.dataStore;
  }

  /** @throws Fault SERVICE_UNAVAILABLE when the api has none */
  get store(): ObjectStore {
    return (this.opened ??= openStore(this.url));
  }

  /** At the start of the api: makes the mark by which workers tell the store. One that is away then keeps no api from starting. */
  async prepare(): Promise<void> {
    if (!this.isThere) return;
    try {
      await this.store.identity();
    } catch (error) {
      this.log.error({ err: error as Error, store: this.store.place }, 'the data store cannot be used');
    }
  }

  /** Equal to what a worker says exactly when both see the same objects. */
  identity(): Promise<string> {
    return this.use((store) => store.identity());
  }

  /** @throws Fault SERVICE_UNAVAILABLE for what the store refuses, NOT_FOUND for an object that is not there; what else the work throws */
  async use<T>(work: (store: ObjectStore) => Promise<T>): Promise<T> {
    try {
      return await work(this.store);
    } catch (error) {
      throw storeFault(error, 'data store', this.log);
    }
  }
}
