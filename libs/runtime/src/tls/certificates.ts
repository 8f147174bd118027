/**
 * The CA of a stack, and the certificates that it issues. Made at the first start, and looked at again while the stack runs:
 *
 *     FOLDER/ca/       ca.crt, ca.key        ten years; nobody but this stack reads the key
 *     FOLDER/server/   ca.crt, tls.crt, tls.key
 *     FOLDER/worker/   ca.crt, tls.crt, tls.key
 *
 * A certificate names the stack and the role, not a host: `paceline://STACK/server`. It is made anew when a third of its time is left. Files are
 * written whole or not at all, keys with mode 0600; who reads a key and a certificate in between finds that they do not fit, and reads again.
 */
import { webcrypto, X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const TLS_ROLES = ['server', 'worker'] as const;
export type CertifiedRole = (typeof TLS_ROLES)[number];

export interface CertificatesOptions {
  readonly folder: string;
  readonly nowMs: number;
  /** For how long certificates hold, and so how long a process may run without somebody who renews them. Default 30. */
  readonly days?: number;
  /** Where the files of a role lie. Default: `folder`/ROLE. */
  readonly folderOf?: (role: CertifiedRole) => string;
}

export interface StackCertificates {
  /** The end of the certificate that ends first. */
  readonly endsAtMs: number;
  /** Those that were made now. */
  readonly made: readonly CertifiedRole[];
}

const DAY_MS = 86_400_000;
const CA_DAYS = 3_650;
const DEFAULT_DAYS = 30;
/** A CA that ends sooner than this is made anew, with all certificates. */
const CA_LEFT_MS = 400 * DAY_MS;
/** Clocks differ. */
const BACKDATED_MS = DAY_MS;
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const STACK = /CN=Paceline (stack-[0-9a-f]{12})$/;

/** Makes what is missing or due. With nothing to make it reads some files and no more. */
export async function keepCertificates(options: CertificatesOptions): Promise<StackCertificates> {
  const { folder, nowMs, days = DEFAULT_DAYS, folderOf = (role) => join(folder, role) } = options;
  const authority = (await readAuthority(join(folder, 'ca'), nowMs)) ?? (await makeAuthority(join(folder, 'ca'), nowMs));
  const made: CertifiedRole[] = [];
  const ends: number[] = [];
  for (const role of TLS_ROLES) {
    const target = folderOf(role);
    let endsAtMs = endOf(target, authority.pem, nowMs, days);
    if (endsAtMs === undefined) {
      await issue(authority, role, target, nowMs, days);
      endsAtMs = endOf(target, authority.pem, nowMs, days) ?? nowMs;
      made.push(role);
    }
    ends.push(endsAtMs);
  }
  return { endsAtMs: Math.min(...ends), made };
}

/** The three files of a role's folder, by the variables that name them to a process. */
export const tlsVariables = (folder: string): Record<string, string> => ({
  PACELINE_TLS_CA: join(folder, 'ca.crt'),
  PACELINE_TLS_CERT: join(folder, 'tls.crt'),
  PACELINE_TLS_KEY: join(folder, 'tls.key'),
});

interface Authority {
  readonly stack: string;
  readonly pem: string;
  readonly key: webcrypto.CryptoKey;
}

async function readAuthority(folder: string, nowMs: number): Promise<Authority | undefined> {
  const [certificateFile, keyFile] = [join(folder, 'ca.crt'), join(folder, 'ca.key')];
  if (!existsSync(certificateFile) || !existsSync(keyFile)) return undefined;
  const pem = readFileSync(certificateFile, 'utf8');
  const certificate = new X509Certificate(pem);
  const stack = STACK.exec(certificate.subject)?.[1];
  if (stack === undefined || Date.parse(certificate.validTo) - nowMs < CA_LEFT_MS) return undefined;
  const bytes = Buffer.from(readFileSync(keyFile, 'utf8').replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
  return { stack, pem, key: await webcrypto.subtle.importKey('pkcs8', bytes, ALGORITHM, false, ['sign']) };
}

async function makeAuthority(folder: string, nowMs: number): Promise<Authority> {
  const x509 = await loadX509();
  const stack = `stack-${Buffer.from(webcrypto.getRandomValues(new Uint8Array(6))).toString('hex')}`;
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=Paceline ${stack}`,
    notBefore: new Date(nowMs - BACKDATED_MS),
    notAfter: new Date(nowMs + CA_DAYS * DAY_MS),
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  const pem = `${certificate.toString('pem')}\n`;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  await storeKey(join(folder, 'ca.key'), keys.privateKey);
  store(join(folder, 'ca.crt'), pem, 0o644);
  return { stack, pem, key: keys.privateKey };
}

async function issue(authority: Authority, role: CertifiedRole, folder: string, nowMs: number, days: number): Promise<void> {
  const x509 = await loadX509();
  const issuer = new x509.X509Certificate(authority.pem);
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await x509.X509CertificateGenerator.create({
    subject: `CN=${authority.stack} ${role}`,
    issuer: issuer.subject,
    notBefore: new Date(nowMs - BACKDATED_MS),
    notAfter: new Date(nowMs + days * DAY_MS),
    publicKey: keys.publicKey,
    signingKey: authority.key,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      // Servers dial each other too.
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
      new x509.SubjectAlternativeNameExtension([{ type: 'url', value: `paceline://${authority.stack}/${role}` }]),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    ],
  });
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  store(join(folder, 'ca.crt'), authority.pem, 0o644);
  await storeKey(join(folder, 'tls.key'), keys.privateKey);
  store(join(folder, 'tls.crt'), `${certificate.toString('pem')}\n`, 0o644);
}

/** When the certificate of a role ends; undefined when a new one is needed. */
function endOf(folder: string, authorityPem: string, nowMs: number, days: number): number | undefined {
  const [authorityFile, certificateFile, keyFile] = ['ca.crt', 'tls.crt', 'tls.key'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  if (![authorityFile, certificateFile, keyFile].every((file) => existsSync(file))) return undefined;
  if (readFileSync(authorityFile, 'utf8') !== authorityPem) return undefined;
  const endsAtMs = Date.parse(new X509Certificate(readFileSync(certificateFile)).validTo);
  return endsAtMs - nowMs < (days * DAY_MS) / 3 ? undefined : endsAtMs;
}

async function storeKey(file: string, key: webcrypto.CryptoKey): Promise<void> {
  const base64 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', key)).toString('base64');
  store(file, `-----BEGIN PRIVATE KEY-----\n${base64.replaceAll(/.{64}/g, '$&\n').trimEnd()}\n-----END PRIVATE KEY-----\n`, 0o600);
}

function store(file: string, text: string, mode: number): void {
  writeFileSync(`${file}.new`, text, { mode });
  renameSync(`${file}.new`, file);
}

/** Only who makes certificates loads it. It wants the metadata of decorators before it. */
async function loadX509(): Promise<typeof import('@peculiar/x509')> {
  await import('reflect-metadata');
  return import('@peculiar/x509');
}
