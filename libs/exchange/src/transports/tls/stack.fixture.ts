/** A CA with certificates of both roles, for tests; nothing is written to disk. */
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { TlsIdentity, type TlsFiles, type TlsRole } from './identity.js';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const DAY_MS = 86_400_000;
const newKeys = () => webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);

export class StackFixture {
  private issued: Record<TlsRole, TlsFiles> | undefined;

  private constructor(
    private readonly name: string,
    private readonly ca: x509.X509Certificate,
    private readonly keys: webcrypto.CryptoKeyPair,
    private madeAtMs: number,
  ) {}

  /** Certificates hold 30 days from `madeAtMs` on. */
  static async make(name: string, madeAtMs = Date.now()): Promise<StackFixture> {
    const keys = await newKeys();
    const ca = await x509.X509CertificateGenerator.createSelfSigned({
      name: `CN=${name}`,
      notBefore: new Date(madeAtMs - DAY_MS),
      notAfter: new Date(madeAtMs + 365 * DAY_MS),
      keys,
      signingAlgorithm: ALGORITHM,
      extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
    });
    const stack = new StackFixture(name, ca, keys, madeAtMs);
    await stack.renew(madeAtMs);
    return stack;
  }

  async renew(nowMs = Date.now()): Promise<void> {
    this.madeAtMs = nowMs;
    this.issued = { server: await this.issue('server'), worker: await this.issue('worker') };
  }

  files(role: TlsRole): TlsFiles {
    return this.issued![role];
  }

  identity(role: TlsRole): TlsIdentity {
    return new TlsIdentity(this.files(role), this.madeAtMs);
  }

  private async issue(role: TlsRole): Promise<TlsFiles> {
    const keys = await newKeys();
    const certificate = await x509.X509CertificateGenerator.create({
      subject: `CN=${role}`,
      issuer: this.ca.subject,
      notBefore: new Date(this.madeAtMs - DAY_MS),
      notAfter: new Date(this.madeAtMs + 30 * DAY_MS),
      publicKey: keys.publicKey,
      signingKey: this.keys.privateKey,
      signingAlgorithm: ALGORITHM,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: 'url', value: `paceline://${this.name}/${role}` }])],
    });
    const key = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64');
    return {
      ca: this.ca.toString('pem'),
      cert: certificate.toString('pem'),
      key: `-----BEGIN PRIVATE KEY-----\n${key}\n-----END PRIVATE KEY-----\n`,
    };
  }
}
