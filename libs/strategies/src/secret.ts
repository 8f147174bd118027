/** What the processes of a cluster know, and nobody else. */
import { LEAST_SECRET_CHARACTERS } from '@paceline/collectives';
import { ClusterConfigError } from './errors.js';

const SECRET_VARIABLE = 'PACELINE_CLUSTER_SECRET';

/** @throws ClusterConfigError where there is none, or one that is too short */
export function secretOf(name: string, secret: string | undefined = process.env[SECRET_VARIABLE]): string {
  if (typeof secret === 'string' && secret.length >= LEAST_SECRET_CHARACTERS) return secret;
  throw new ClusterConfigError(
    `${name}: ${secret === undefined ? 'a cluster needs a shared secret' : `the shared secret must be a text of at least ${LEAST_SECRET_CHARACTERS} characters`}: set ${SECRET_VARIABLE}, or the option secret, to the same text in every process (openssl rand -hex 32 makes one)`,
  );
}
