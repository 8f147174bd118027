/** The lines of a text in batches, their length bounded before they are whole. UTF-8; a byte order mark and carriage returns are taken off. */
import { IngestError } from '../ingest-error.js';
import { unpacked } from './compression.js';
import type { SourceContext, SourceFile } from './source-file.js';

const NEWLINE = 10;

/** @throws IngestError ROW_TOO_LONG, FORMAT_MALFORMED for bytes that are no UTF-8 */
export async function* linesOf(file: SourceFile, context: SourceContext): AsyncGenerator<string[]> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const { rowBytes } = context.options.limits;
  let open: Uint8Array[] = [];
  let openBytes = 0;
  let line = 0;
  const text = (bytes: Uint8Array): string => {
    line++;
    if (bytes.length > rowBytes) throw tooLong();
    try {
      const decoded = decoder.decode(bytes);
      return (line === 1 && decoded.startsWith('\ufeff') ? decoded.slice(1) : decoded).replace(/\r$/, '');
    } catch (error) {
      throw new IngestError('FORMAT_MALFORMED', 'The line is not UTF-8.', { file: file.name, row: line }, { cause: error });
    }
  };
  const tooLong = (): IngestError =>
    new IngestError('ROW_TOO_LONG', `The line has more than ${rowBytes} bytes.`, { file: file.name, row: line + 1 });
  for await (const piece of unpacked(file, context)) {
    const lines: string[] = [];
    let from = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, from)) {
      const tail = piece.subarray(from, end);
      lines.push(text(open.length === 0 ? tail : Buffer.concat([...open, tail])));
      open = [];
      openBytes = 0;
      from = end + 1;
    }
    if (from < piece.length) {
      open.push(piece.subarray(from));
      openBytes += piece.length - from;
      if (openBytes > rowBytes) throw tooLong();
    }
    yield lines;
  }
  if (openBytes > 0) yield [text(Buffer.concat(open))];
}
