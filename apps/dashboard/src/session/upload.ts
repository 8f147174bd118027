/** Sends a file to the api as it is. XMLHttpRequest, because fetch does not tell how far an upload is. */
import { refusalOf } from '@paceline/client';
import { ApiFault, asFault } from '../graphql/api-fault.js';

const PATH = '/api/v1/datasets/uploads';

/**
 * @returns the id of the upload
 * @throws ApiFault; when `signal` is aborted, the signal's reason
 */
export function uploadFile(key: string, file: File, onSent: (bytes: number) => void, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    const abort = (): void => sending.abort();
    const end = (outcome: () => void): void => {
      signal.removeEventListener('abort', abort);
      outcome();
    };
    sending.open('POST', `${PATH}?name=${encodeURIComponent(file.name)}`);
    sending.setRequestHeader('authorization', `Bearer ${key}`);
    sending.setRequestHeader('content-type', 'application/octet-stream');
    sending.upload.onprogress = ({ loaded }) => onSent(loaded);
    sending.onload = () => end(() => settle(sending, resolve, reject));
    sending.onerror = () =>
      end(() => reject(new ApiFault('UNREACHABLE', `The connection broke while ${file.name} was sent. Send it again.`)));
    sending.onabort = () => end(() => reject(signal.reason as Error));
    signal.addEventListener('abort', abort, { once: true });
    sending.send(file);
  });
}

function settle(sending: XMLHttpRequest, resolve: (id: string) => void, reject: (fault: ApiFault) => void): void {
  const body = parsed(sending.responseText);
  if (sending.status === 201 && typeof body['id'] === 'string') return resolve(body['id']);
  const seconds = Number(sending.getResponseHeader('retry-after') ?? Number.NaN);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : undefined;
  reject(asFault(refusalOf('The API', { status: sending.status, text: sending.responseText, retryAfterMs })));
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' ? (value as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {}; // no answer of our api; the status says the rest
  }
}
