/**
 * The certificate of this process, its key and the CA: three files that PACELINE_TLS_CA, PACELINE_TLS_CERT and PACELINE_TLS_KEY name. They are read
 * again every ten seconds, so that whoever renews them needs to tell nobody. What does not fit together is not taken: somebody is writing it.
 */
import { readFileSync } from 'node:fs';
import { UserError } from '../user-error.js';

export interface TlsFileSettings {
  readonly PACELINE_TLS_CA: string | undefined;
  readonly PACELINE_TLS_CERT: string | undefined;
  readonly PACELINE_TLS_KEY: string | undefined;
}

/** Contents, in PEM. */
interface TlsTexts {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

interface Replaceable {
  readonly endsAtMs: number;
  /** Throws, and stays what it was, when the files are of no use. */
  replace(files: TlsTexts): void;
}

interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

const LOOK_EVERY_MS = 10_000;
/** After so many looks files that do not fit are no write that is under way. */
const LOOKS_BEFORE_WARNING = 3;
const HINT =
  'Set PACELINE_TLS_CA, PACELINE_TLS_CERT and PACELINE_TLS_KEY to the files of one certificate, in PEM, or none of them for a data plane without TLS.';

/**
 * @param make an identity out of the files; what it throws ends the process, with what to do
 * @returns undefined when no file is named: the data plane is not encrypted
 * @throws UserError TLS_FILES
 */
export function followTlsFiles<T extends Replaceable>(
  settings: TlsFileSettings,
  make: (files: TlsTexts) => T,
  log: Log,
  everyMs: number = LOOK_EVERY_MS,
): { readonly identity: T; stop(): void } | undefined {
  const { PACELINE_TLS_CA: ca, PACELINE_TLS_CERT: cert, PACELINE_TLS_KEY: key } = settings;
  if (ca === undefined && cert === undefined && key === undefined) return undefined;
  if (ca === undefined || cert === undefined || key === undefined)
    throw new UserError('TLS_FILES', 'Only some of PACELINE_TLS_CA, PACELINE_TLS_CERT and PACELINE_TLS_KEY are set.', {
      exit: 'configuration',
      hint: HINT,
    });
  const read = (): TlsTexts => ({ ca: readFileSync(ca, 'utf8'), cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8') });
  let present: TlsTexts;
  let identity: T;
  try {
    present = read();
    identity = make(present);
  } catch (error) {
    throw new UserError('TLS_FILES', `The certificate of this process cannot be used: ${(error as Error).message}`, {
      exit: 'configuration',
      hint: HINT,
      cause: error,
    });
  }
  let misfits = 0;
  const look = (): void => {
    try {
      const found = read();
      if (found.ca === present.ca && found.cert === present.cert && found.key === present.key) return;
      identity.replace(found);
      present = found;
      misfits = 0;
      log.info({ endsAt: new Date(identity.endsAtMs).toISOString() }, 'new connections use a new certificate');
    } catch (error) {
      if (++misfits === LOOKS_BEFORE_WARNING) log.warn({ err: error }, 'the new certificate cannot be used; the one before stays');
    }
  };
  const timer = setInterval(look, everyMs);
  timer.unref();
  return { identity, stop: () => clearInterval(timer) };
}
