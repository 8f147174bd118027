/**
 * The session of the signed-in viewer, as one state machine:
 *
 *     SIGNED_OUT --key typed, or in the address or the storage--> CHECKING
 *     CHECKING   --viewer answers-->  SIGNED_IN (the key is stored)
 *     CHECKING   --refused-->         SIGNED_OUT, saying why; a stored key is forgotten
 *     CHECKING   --unreachable-->     SIGNED_OUT with the key in the field, when it was typed; otherwise it is checked again and again
 *     SIGNED_IN  --sign out, or any answer UNAUTHENTICATED--> SIGNED_OUT (the key is forgotten)
 */
import { ApiConnection, type SocketState } from '@paceline/client';
import { useCallback, useEffect, useMemo, useState, type ReactNode } from 'react';
import { asFault, type ApiFault } from '../graphql/api-fault.js';
import { Viewer, type ViewerResult } from '../graphql/generated/operations.js';
import { Connection } from '../live/connection.js';
import { pauseUntilNudged } from '../live/follow.js';
import { ApiContext, type Api } from './api-context.js';
import { downloadFile } from './download.js';
import { forgetKey, readKey, takeKeyFromAddress, writeKey, type StoredKey } from './key-store.js';
import { SignIn } from './SignIn.js';
import { uploadFile } from './upload.js';

const CHECK_AGAIN_MS = 2_000;
const SOCKET = { pingEveryMs: 5_000, pongDeadlineMs: 4_000, connectTimeoutMs: 10_000 };

type State =
  | { readonly at: 'SIGNED_OUT'; readonly fault?: ApiFault; readonly tried?: StoredKey }
  | { readonly at: 'CHECKING'; readonly tried: StoredKey; readonly typed: boolean; readonly trouble?: ApiFault }
  | { readonly at: 'SIGNED_IN'; readonly stored: StoredKey; readonly viewer: ViewerResult['viewer'] };

function firstState(): State {
  const brought = takeKeyFromAddress();
  if (brought) return { at: 'CHECKING', tried: brought, typed: false };
  const stored = readKey();
  return stored ? { at: 'CHECKING', tried: stored, typed: false } : { at: 'SIGNED_OUT' };
}

export function Session({ children }: { children: (viewer: ViewerResult['viewer'], signOut: () => void) => ReactNode }): ReactNode {
  const [state, setState] = useState(firstState);

  useEffect(() => {
    const takeKey = (): void => {
      const tried = takeKeyFromAddress();
      if (tried) setState({ at: 'CHECKING', tried, typed: false });
    };
    window.addEventListener('hashchange', takeKey);
    return () => window.removeEventListener('hashchange', takeKey);
  }, []);

  useEffect(() => {
    if (state.at !== 'CHECKING') return;
    const controller = new AbortController();
    void check(state, controller.signal).then((next) => {
      if (!controller.signal.aborted) setState(next);
    });
    return () => controller.abort();
  }, [state]);

  const end = useCallback((fault?: ApiFault) => {
    forgetKey();
    setState({ at: 'SIGNED_OUT', ...(fault ? { fault } : {}) });
  }, []);

  if (state.at === 'SIGNED_IN') {
    return (
      <SignedIn key={state.stored.key} apiKey={state.stored.key} end={end}>
        {children(state.viewer, () => end())}
      </SignedIn>
    );
  }
  return (
    <SignIn
      checking={state.at === 'CHECKING'}
      quiet={state.at === 'CHECKING' && !state.typed}
      trouble={state.at === 'CHECKING' ? state.trouble : undefined}
      onOtherKey={() => end()}
      fault={state.at === 'SIGNED_OUT' ? state.fault : undefined}
      tried={state.tried}
      onKey={(tried) => setState({ at: 'CHECKING', tried, typed: true })}
    />
  );
}

async function check({ tried, typed, trouble }: Extract<State, { at: 'CHECKING' }>, signal: AbortSignal): Promise<State> {
  try {
    // The second and later times; somebody looks at a page that says so.
    if (trouble) await pauseUntilNudged(Math.max(CHECK_AGAIN_MS, trouble.retryAfterMs ?? 0), signal);
    const { viewer } = await new ApiConnection({ url: location.origin, apiKey: tried.key }).request(Viewer, {}, { signal });
    writeKey(tried);
    return { at: 'SIGNED_IN', stored: tried, viewer };
  } catch (error) {
    const fault = asFault(error);
    // A stale link must not cost the key that this browser has.
    if (fault.kind === 'UNAUTHENTICATED' && readKey()?.key === tried.key) forgetKey();
    return fault.isTemporary && !typed ? { at: 'CHECKING', tried, typed, trouble: fault } : { at: 'SIGNED_OUT', fault, tried };
  }
}

function SignedIn({ apiKey, end, children }: { apiKey: string; end: (fault?: ApiFault) => void; children: ReactNode }): ReactNode {
  const connection = useMemo(() => new Connection(), []);
  const live = useMemo(() => {
    const onSocket = (state: SocketState): void => connection.reportSocket(state);
    return new ApiConnection({ url: location.origin, apiKey, holdsAnswers: true, ...SOCKET, onSocket });
  }, [apiKey, connection]);
  const api = useMemo<Api>(() => {
    return {
      ask: (document, variables, signal) => live.request(document, variables, { signal }),
      download: (path) => downloadFile(live, path),
      upload: (file, onSent, signal) => uploadFile(apiKey, file, onSent, signal),
      connection,
      live,
      onFault: (fault) => {
        if (fault.kind === 'UNAUTHENTICATED') end(fault);
        return fault.kind === 'UNAUTHENTICATED';
      },
    };
  }, [apiKey, connection, live, end]);
  useEffect(() => () => void live.close(), [live]);
  return <ApiContext value={api}>{children}</ApiContext>;
}
