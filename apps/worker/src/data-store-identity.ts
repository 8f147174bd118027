/**
 * Identity of the data store that this worker sees, for its heartbeats: the api compares it with its own before a run begins. A worker may see the
 * store read-only, so it never creates the identity file; it looks until the api has created it.
 */
import type { Logger } from '@paceline/runtime';
import { openStore, STORE_MARKER_KEY, type ObjectStore } from '@paceline/storage';

const LOOK_EVERY_MS = 2_000;
const LOOK_AGAIN_MS = 60_000;

export interface DataStoreIdentity {
  /** null: it has none, or has not seen its mark yet. */
  identity(): string | null;
  stop(): void;
}

export function watchDataStore(url: string | undefined, log: Logger): DataStoreIdentity {
  let identity: string | null = null;
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  let told: string | undefined;
  const look = async (store: ObjectStore): Promise<void> => {
    try {
      const mark = JSON.parse(Buffer.from(await store.read(STORE_MARKER_KEY)).toString('utf8')) as { readonly id?: unknown };
      identity = typeof mark.id === 'string' ? mark.id : null;
    } catch (error) {
      identity = null;
      const why = (error as Error).message;
      if (why !== told) log.warn({ err: why, store: store.place }, 'the data store cannot be read yet');
      told = why;
    }
    if (isStopped) return;
    timer = setTimeout(() => void look(store), identity === null ? LOOK_EVERY_MS : LOOK_AGAIN_MS);
    timer.unref();
  };
  if (url !== undefined) void look(openStore(url));
  return {
    identity: () => identity,
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
