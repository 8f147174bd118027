/**
 * What the processes did together, line by line, for a process that comes again (course.ts): each operation by its name, and what followed from it. A line never
 * changes. What replicas answered is kept beside the lines, until what follows from the answers is a line of its own.
 *
 * Lines lie in blocks that are deflated when they are full. Their bytes are bounded: beyond the bound, and after what cannot be told, the journal is closed, and
 * nobody can come any more. Answers are bounded too: beyond the bound nobody can come before the evaluation in hand is over.
 */
import { deflateRawSync, inflateRawSync } from 'node:zlib';

interface Block {
  readonly from: number;
  readonly count: number;
  readonly bytes: Buffer;
}

/** An answer has lines of about so many characters. */
const TOLD_CHARACTERS = 256 << 10;

export interface Told {
  readonly lines: readonly string[];
  /** Why no process can come any more. */
  readonly closed: string | undefined;
}

export interface JournalBounds {
  readonly blockCharacters: number;
  /** Of deflated blocks; and of answers. */
  readonly mostBytes: number;
}

export class Journal {
  private readonly blocks: Block[] = [];
  private open: string[] = [];
  private openFrom = 0;
  private openCharacters = 0;
  private bytes = 0;
  /** Outputs by their line; none where there are too many. */
  private readonly kept = new Map<number, readonly Float32Array[]>();
  private keptBytes = 0;
  private keptFrom = Infinity;
  private why: string | undefined;

  constructor(private readonly bounds: JournalBounds = { blockCharacters: 64 << 10, mostBytes: 64 << 20 }) {}

  get length(): number {
    return this.openFrom + this.open.length;
  }

  /** @param outputs what replicas answered; kept until `settled` */
  add(line: string, outputs?: readonly Float32Array[]): void {
    if (this.why !== undefined) return;
    if (outputs) this.keep(outputs);
    this.open.push(line);
    this.openCharacters += line.length;
    if (this.openCharacters >= this.bounds.blockCharacters) this.seal();
    if (this.bytes > this.bounds.mostBytes)
      this.close(`what the processes have done so far takes more than ${this.bounds.mostBytes} bytes to tell`);
  }

  private keep(outputs: readonly Float32Array[]): void {
    this.keptFrom = Math.min(this.keptFrom, this.length);
    this.keptBytes += outputs.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (this.hasAll) this.kept.set(this.length, outputs);
    else this.kept.clear();
  }

  /** What an evaluation in hand has come to so far can be told: all that replicas have answered in it is kept. */
  get hasAll(): boolean {
    return this.keptBytes <= this.bounds.mostBytes;
  }

  /** What followed from the answers is in a line. */
  settled(): void {
    this.kept.clear();
    this.keptBytes = 0;
    this.keptFrom = Infinity;
  }

  /** @param why nobody can come any more */
  close(why: string): void {
    this.why ??= why;
    this.blocks.length = this.open.length = 0;
    this.settled();
  }

  /** Lines from one on, as many as fit into an answer; none whose outputs are kept still. */
  told(from: number): Told {
    return { lines: this.why === undefined ? this.lines(from, TOLD_CHARACTERS, this.keptFrom) : [], closed: this.why };
  }

  /** All lines from one on, with the outputs that are kept. */
  rest(from: number): Told {
    return { lines: this.why === undefined ? this.lines(from, Infinity, Infinity) : [], closed: this.why };
  }

  private lines(from: number, characters: number, to: number): string[] {
    const lines: string[] = [];
    let room = characters;
    for (let at = from; at < Math.min(this.length, to) && room > 0;) {
      const block = this.linesAt(at);
      for (const line of block.lines.slice(at - block.from)) {
        if (at >= to || room <= 0) break;
        const told = this.withOutputs(at, line);
        lines.push(told);
        room -= told.length;
        at++;
      }
    }
    return lines;
  }

  private withOutputs(at: number, line: string): string {
    const outputs = this.kept.get(at);
    if (!outputs) return line;
    const [what] = JSON.parse(line) as [string];
    return JSON.stringify([
      what,
      null,
      outputs.map((values) => Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString('base64')),
    ]);
  }

  private linesAt(at: number): { readonly from: number; readonly lines: readonly string[] } {
    if (at >= this.openFrom) return { from: this.openFrom, lines: this.open };
    const { from, bytes } = this.blocks.find((block) => at < block.from + block.count)!;
    return { from, lines: inflateRawSync(bytes).toString().split('\n') };
  }

  private seal(): void {
    const bytes = deflateRawSync(this.open.join('\n'));
    this.blocks.push({ from: this.openFrom, count: this.open.length, bytes });
    this.bytes += bytes.length;
    this.openFrom += this.open.length;
    this.open = [];
    this.openCharacters = 0;
  }
}
