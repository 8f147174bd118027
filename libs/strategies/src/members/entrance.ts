/** The journal of a group thread, and how it gets to a process that was started again: piece by piece before that is let in, and the rest with the view that has it. */
import { ClusterError, type Membership, type NextView, Spread, type Timing } from '@paceline/collectives';
import { Journal, type Told } from './journal.js';
import type { ToGroupThread } from './protocol.js';

/** What a process gets that was started again. */
interface Answer extends Told {
  /** Of the topologies, with `auto`. */
  readonly timings: readonly Timing[];
}

type Lines = Pick<Told, 'lines' | 'closed'>;
type Line = Pick<Extract<ToGroupThread, { kind: 'note' }>, 'line' | 'outputs' | 'settles'>;

const encoded = (value: unknown): Uint8Array => new Uint8Array(Buffer.from(JSON.stringify(value)));

export class Entrance {
  private readonly journal = new Journal();
  /** The first answer, until somebody asks for it. */
  private first: Answer | undefined;

  note({ line, outputs, settles }: Line): void {
    if (settles) this.journal.settled();
    this.journal.add(line, outputs);
  }

  close(why: string): void {
    this.journal.close(why);
  }

  /** Nobody is let in while something cannot be told. */
  get mayEnter(): boolean {
    return this.journal.hasAll;
  }

  told(from: number, timings: readonly Timing[]): Uint8Array {
    return encoded({ ...this.journal.told(from), timings } satisfies Answer);
  }

  /** @param known lines @throws ClusterError for an answer that is none */
  async ask(group: Pick<Membership, 'told'>, known: number): Promise<Answer> {
    const { first } = this;
    this.first = undefined;
    if (first && known === 0) return first;
    const answer = JSON.parse(Buffer.from(await group.told(known)).toString()) as Answer;
    if (!Array.isArray(answer.lines) || !Array.isArray(answer.timings))
      throw new ClusterError('what the others have done came in another form');
    if (known === 0) this.first = answer;
    return answer;
  }

  /** A part of laying out a view. @returns the lines, for who was let in */
  async handOver(group: Pick<Membership, 'run'>, { number, members, source, entrant }: NextView, self: number): Promise<Lines | undefined> {
    const { member, known } = entrant!;
    const rest = source === self ? encoded(this.journal.rest(known)) : new Uint8Array(0);
    const what = `what was done before view ${number}`;
    const { values } = await group.run({ what: `the length of ${what}`, values: encoded(rest.length), operations: [] }, false);
    const [from, to] = [members.indexOf(source), members.indexOf(member)];
    const bytes = new Uint8Array(Math.ceil(Number(Buffer.from(values[from]!).toString()) / 4) * 4).fill(0x20); // JSON takes spaces at its end
    bytes.set(rest);
    const isIn = source === self || member === self;
    const parts = isIn ? [{ member: from, values: new Float32Array(bytes.buffer) }] : [];
    await group.run({ what, operations: [new Spread(members.length, members.indexOf(self), parts, [to])] }, false);
    return member === self ? (JSON.parse(Buffer.from(bytes).toString()) as Lines) : undefined;
  }
}
