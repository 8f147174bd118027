/** Versions are SHA-256 hashes: as many digits as tell them apart are shown, and taken where one is named. */
const SHOWN_DIGITS = 12;
const VERSION = /^[0-9a-f]{8,64}$/;

export const shortVersion = (version: string): string => version.slice(0, SHOWN_DIGITS);

/** The version that an address asks for. */
export function versionIn(search: string): string | undefined {
  const version = new URLSearchParams(search).get('version') ?? '';
  return VERSION.test(version) ? version : undefined;
}

/** name@0f1e… as a spec has it, in its parts. */
export function parseReference(reference: unknown): { readonly name: string; readonly version: string | undefined } | undefined {
  const [, name, version] = /^([a-z0-9._-]{1,64})(?:@([0-9a-f]{8,64}))?$/.exec(typeof reference === 'string' ? reference : '') ?? [];
  return name === undefined ? undefined : { name, version };
}

/** What trains on it, to be copied. @param version undefined: the newest */
export const trainCommand = (name: string, version: string | undefined): string =>
  `npx paceline train --dataset ${name}${version === undefined ? '' : `@${shortVersion(version)}`}`;
