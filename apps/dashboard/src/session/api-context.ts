/** What a signed-in page uses to talk to the api. */
import type { ApiConnection, TypedDocument } from '@paceline/client';
import { createContext, useContext } from 'react';
import type { ApiFault } from '../graphql/api-fault.js';
import type { Connection } from '../live/connection.js';

export interface Api {
  /** @throws PacelineApiError; when `signal` is aborted, the signal's reason */
  readonly ask: <Result, Variables>(
    document: TypedDocument<Result, Variables>,
    variables: Variables,
    signal?: AbortSignal,
  ) => Promise<Result>;
  /** Fetches a file of the api with the key. @throws ApiFault */
  readonly download: (path: string) => Promise<Blob>;
  /** Sends a file for an import. @returns its id @throws ApiFault; when `signal` is aborted, the signal's reason */
  readonly upload: (file: File, onSent: (bytes: number) => void, signal: AbortSignal) => Promise<string>;
  readonly live: Pick<ApiConnection, 'subscribe'>;
  readonly connection: Connection;
  /** Ends the session when the key is not accepted any more; true when it did. */
  readonly onFault: (fault: ApiFault) => boolean;
}

export const ApiContext = createContext<Api | undefined>(undefined);

export function useApi(): Api {
  const api = useContext(ApiContext);
  if (!api) throw new Error('useApi outside of a session');
  return api;
}
