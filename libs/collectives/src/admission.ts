/**
 * How a process takes the place of one that was lost, while the others train on. It was started again, with the same program, and knows nothing.
 *
 * | state of the process | it says | the lowest member answers | what follows |
 * |---|---|---|---|
 * | comes | hello, as a process that begins | with a proof, that the group has begun and that the place is free (join.ts); others refuse, and it asks all again | asks |
 * | asks | what it wants to know | that | asks; or is ready, when it knows about as much as the others |
 * | is ready | that it wants to be let in | `not now`: another one is being let in, or a view is formed | is ready, a little later |
 * | | | `come`, with the members | is awaited |
 * | is awaited | comes together with the members (join.ts `again`); all agree on a view with it (views.ts) | tells all others who comes: they leave the operation in hand, as when somebody is lost | is a member, and gets the state of the source |
 * | | | the view is formed without it | comes |
 * | any of these | | the connection ends | comes |
 *
 * The members do nothing for it before it is ready, but answer. What it costs them then is what a loss costs: the operation in hand is done again, and
 * everything is laid out anew. One process is let in at a time. If it or a member dies before it has the state, the others form a view without it.
 */
import type { Clock } from '@paceline/exchange';
import { ProtocolError, type Message } from '@paceline/protocol';
import { MemberLostError } from './errors.js';
import { NUMBERS } from './greeting.js';
import type { Offer } from './join.js';
import type { Link } from './link.js';

const [ASK, ENTER] = ['what the others did', 'let this process in'];
/** An answer says how many bytes there are in all, and has so many of them. */
const PIECE_BYTES = 40_000;
/** An answer may take so long: who answers waits for nobody. */
const ANSWER_MS = 10_000;
const refuse = (): never => {
  throw new ProtocolError('BAD_ROUND', 'data came before this process was let in');
};
const say = ({ connection }: Link, number: number, what: string, values: Uint8Array): void => {
  if (connection.isOpen)
    connection.sendMessage({ type: 'call', number, what, values: Buffer.from(values).toString('base64'), failures: [] }, NUMBERS);
};
const asBytes = (value: unknown): Uint8Array => new Uint8Array(Buffer.from(JSON.stringify(value)));

/** What a member answers. */
export interface Admits {
  /** @param from how much the other one knows, in its own measure */
  told(from: number): Uint8Array;
  /** @returns the members that it is to come together with; undefined: not now */
  enter(): readonly number[] | undefined;
}

/** The side of the member: it answers until the connection ends. */
export function answer(link: Link, admits: Admits): void {
  link.take({
    payloadFor: refuse,
    data: refuse,
    closed: () => undefined,
    message: (message) => {
      if (message.type !== 'call') throw new ProtocolError('BAD_MESSAGE', `a process that is not let in yet says no ${message.type}`);
      const { number, what, values } = message;
      if (what === ENTER) return say(link, number, what, asBytes(admits.enter() ?? []));
      const [from = 0, at = 0] = JSON.parse(Buffer.from(values, 'base64').toString()) as number[];
      const all = admits.told(from);
      say(link, number, what, Buffer.concat([Buffer.from(Uint32Array.of(all.length).buffer), all.subarray(at, at + PIECE_BYTES)]));
    },
  });
}

/** The side of the process that comes: asks one thing after the other. */
export class Applicant {
  private number = 0;
  private heard: ((message: Message) => void) | undefined;
  private failed: ((error: Error) => void) | undefined;
  private hasEnded = false;

  constructor(
    private readonly offer: Offer,
    private readonly name: string,
    private readonly clock: Clock,
  ) {
    offer.link.take({
      payloadFor: refuse,
      data: refuse,
      message: (message) => this.heard?.(message),
      closed: (why) => {
        this.hasEnded = true;
        this.failed?.(this.lost(`the connection has ended (${why})`));
      },
    });
  }

  /** @throws MemberLostError when the member is gone */
  async told(from: number): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for (let at = 0; ; at += PIECE_BYTES) {
      const bytes = await this.ask(ASK, asBytes([from, at]));
      const all = bytes.readUInt32LE(0);
      pieces.push(bytes.subarray(4));
      // More may have been done between two pieces: what is cut off then is asked for the next time.
      if (at + bytes.length - 4 >= all || bytes.length - 4 < PIECE_BYTES) return Buffer.concat(pieces);
    }
  }

  /** @returns the members; undefined: not now @throws MemberLostError */
  async enter(): Promise<readonly number[] | undefined> {
    const members = JSON.parse((await this.ask(ENTER, new Uint8Array(0))).toString()) as number[];
    return members.length > 0 ? members : undefined;
  }

  close(): void {
    this.offer.link.connection.close();
  }

  private lost(why: string): MemberLostError {
    return new MemberLostError([this.offer.member], `${this.name}, which lets this process in: ${why}`);
  }

  private async ask(what: string, values: Uint8Array): Promise<Buffer> {
    const { link } = this.offer;
    if (this.hasEnded) throw this.lost('the connection has ended');
    const number = ++this.number;
    let cancel = (): void => undefined;
    try {
      return await new Promise<Buffer>((resolve, reject) => {
        this.failed = reject;
        this.heard = (message) => {
          if (message.type === 'call' && message.number === number) resolve(Buffer.from(message.values, 'base64'));
        };
        cancel = this.clock.after(ANSWER_MS, () => reject(this.lost(`it has not answered for ${ANSWER_MS} ms`)));
        say(link, number, what, values);
      });
    } finally {
      cancel();
      this.heard = this.failed = undefined;
    }
  }
}
