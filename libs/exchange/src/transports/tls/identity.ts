/**
 * The identity of this process on the data plane under TLS: its certificate with its key, and the CA whose certificates it takes from others.
 *
 * A certificate names a stack and a role, not a host, because the addresses of servers and workers change: the one URI among its alternative
 * names is `paceline://STACK/ROLE`. Each end takes only certificates of its own stack, in a role that may be at the other end.
 *
 * Certificates are replaced while the process runs: connections that are opened afterwards use the new ones, and those that stand stay.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls';

export type TlsRole = 'server' | 'worker';

/** Contents of the three files, each in PEM. `ca` may hold several certificates, while one follows another. */
export interface TlsFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export interface PeerName {
  readonly stack: string;
  readonly role: TlsRole;
}

/** What `connect` and `listen` are given. */
export interface TlsSettings {
  readonly identity: TlsIdentity;
  /** Roles that the peer may have. */
  readonly peers: readonly TlsRole[];
}

export type TlsFilesErrorCode = 'TLS_FILE_INVALID' | 'TLS_CERTIFICATE_EXPIRED' | 'TLS_FOREIGN_CA' | 'TLS_WRONG_ROLE';

/** The files of this process itself are not usable. */
export class TlsFilesError extends Error {
  override readonly name = 'TlsFilesError';
  constructor(
    readonly code: TlsFilesErrorCode,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(`${code}: ${detail}`, options);
  }
}

/** TLS 1.3 alone; AES-128-GCM first, which takes the least time where the processor has instructions for it. */
export const TLS_VERSION = { minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3' } as const;
const CIPHERS = 'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256';
const NAME = /^URI:paceline:\/\/([a-z0-9][a-z0-9.-]{0,63})\/(server|worker)$/;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

export class TlsIdentity {
  #contextOptions!: SecureContextOptions;
  #context!: SecureContext;
  #name!: PeerName;
  #certificate!: X509Certificate;
  readonly #listeners = new Set<() => void>();

  /** @throws TlsFilesError */
  constructor(files: TlsFiles, nowMs: number = Date.now()) {
    this.#take(files, nowMs);
  }

  /** The identity of a process of this role. @throws TlsFilesError */
  static of(role: TlsRole, files: TlsFiles): TlsIdentity {
    const identity = new TlsIdentity(files);
    if (identity.name.role === role) return identity;
    throw new TlsFilesError(
      'TLS_WRONG_ROLE',
      `the certificate is that of a ${identity.name.role}; this process is a ${role} and needs its own`,
    );
  }

  get name(): PeerName {
    return this.#name;
  }

  /** When its certificate ends. */
  get endsAtMs(): number {
    return Date.parse(this.#certificate.validTo);
  }

  /** For one connection that is being opened. */
  get context(): SecureContext {
    return this.#context;
  }

  get contextOptions(): SecureContextOptions {
    return this.#contextOptions;
  }

  /** For connections from now on. After an error it is what it was. @throws TlsFilesError */
  replace(files: TlsFiles, nowMs: number = Date.now()): void {
    this.#take(files, nowMs);
    for (const listener of this.#listeners) listener();
  }

  /** @returns call it to hear no more */
  onReplaced(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #take({ ca, cert, key }: TlsFiles, nowMs: number): void {
    const authorities = certificatesOf(ca, 'the CA');
    const [certificate] = certificatesOf(cert, 'the certificate');
    if (!certificate || !isKeyOf(key, certificate))
      throw new TlsFilesError('TLS_FILE_INVALID', 'the key is not that of the certificate; give both files of one pair');
    if (!authorities.some((authority) => certificate.checkIssued(authority) && certificate.verify(authority.publicKey)))
      throw new TlsFilesError(
        'TLS_FOREIGN_CA',
        'the certificate is not issued by the CA that is given; give the CA that issued it, which is that of all servers and workers',
      );
    if (Date.parse(certificate.validTo) <= nowMs)
      throw new TlsFilesError('TLS_CERTIFICATE_EXPIRED', `the certificate ended on ${certificate.validTo}; make a new one`);
    const name = nameIn(certificate);
    if (!name)
      throw new TlsFilesError(
        'TLS_WRONG_ROLE',
        'the certificate names no stack and role; its alternative names must hold one URI like paceline://STACK/server or paceline://STACK/worker',
      );
    const options = { ca, cert, key, ciphers: CIPHERS, honorCipherOrder: true, ...TLS_VERSION };
    this.#context = createSecureContext(options);
    this.#contextOptions = options;
    this.#name = name;
    this.#certificate = certificate;
  }
}

/** The stack and role of a certificate; undefined when it has none, or more than one. */
export function nameIn(certificate: X509Certificate): PeerName | undefined {
  const found = (certificate.subjectAltName ?? '').split(', ').flatMap((entry) => {
    const [, stack, role] = NAME.exec(entry) ?? [];
    return stack === undefined ? [] : [{ stack, role: role as TlsRole }];
  });
  return found.length === 1 ? found[0] : undefined;
}

function certificatesOf(pem: string, what: string): X509Certificate[] {
  try {
    const found = (pem.match(CERTIFICATE) ?? []).map((text) => new X509Certificate(text));
    if (found.length > 0) return found;
  } catch (error) {
    throw new TlsFilesError('TLS_FILE_INVALID', `${what} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  throw new TlsFilesError('TLS_FILE_INVALID', `${what} holds no certificate in PEM`);
}

function isKeyOf(key: string, certificate: X509Certificate): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(key));
  } catch (error) {
    throw new TlsFilesError('TLS_FILE_INVALID', `the key cannot be read: ${(error as Error).message}`, { cause: error });
  }
}
