/** Files of the api need the key in a header, so a plain link would not do. */
import type { ApiConnection } from '@paceline/client';
import { ApiFault } from '../graphql/api-fault.js';

/** @throws PacelineApiError, or an ApiFault when the address is not the api's own, so that the key never goes elsewhere */
export async function downloadFile(api: ApiConnection, path: string): Promise<Blob> {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) throw new ApiFault('REFUSED', 'The file is not on this server; open its address yourself.');
  const parts: BlobPart[] = [];
  for await (const part of (await api.file(url.pathname + url.search)).body) parts.push(part as Uint8Array<ArrayBuffer>);
  return new Blob(parts);
}

/** Hands a file to the browser's downloads. */
export function saveFile(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
