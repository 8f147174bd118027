/** Files of the api need the key in a header, so a plain link would not do. */
import { ApiFault } from '../graphql/api-fault.js';
import { faultOf } from '../graphql/request.js';

const DEADLINE_MS = 10 * 60_000;

/** @throws ApiFault; also when the address is not the api's own, so that the key never goes elsewhere */
export async function downloadFile(key: string, path: string): Promise<Blob> {
  const url = new URL(path, location.href);
  if (url.origin !== location.origin) throw new ApiFault('REFUSED', 'The file is not on this server; open its address yourself.');
  let response: Response;
  try {
    response = await fetch(url, {
      headers: { authorization: `Bearer ${key}` },
      credentials: 'omit',
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
  } catch {
    throw new ApiFault('UNREACHABLE', 'The API cannot be reached.'); // fetch says no more than that
  }
  if (response.ok) return response.blob();
  throw faultOf(response, { errors: [{ message: `The file cannot be read (HTTP ${response.status}).` }] })!;
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
