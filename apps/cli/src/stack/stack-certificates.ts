/** The CA of the local stack and what it issues, in the data folder: made at the first start with TLS, renewed while the stack runs. */
import { join } from 'node:path';
import { keepCertificates, tlsVariables, type CertifiedRole } from '@paceline/runtime/certificates';

const LOOK_EVERY_MS = 3_600_000;

export const tlsFolder = (dataDir: string): string => join(dataDir, 'tls');

/** What a process of this role is told of them. */
export const variablesOf = (dataDir: string, role: CertifiedRole): Record<string, string> => tlsVariables(join(tlsFolder(dataDir), role));

/** @returns what looks every hour whether something is due; processes read new files by themselves */
export async function keepsCertificates(dataDir: string, tell: (text: string) => void): Promise<NodeJS.Timeout> {
  const keep = () => keepCertificates({ folder: tlsFolder(dataDir), nowMs: Date.now() });
  await keep();
  const failed = (error: Error): void => tell(`certificates could not be renewed, and are tried again in an hour: ${error.message}`);
  return setInterval(() => void keep().catch(failed), LOOK_EVERY_MS).unref();
}
