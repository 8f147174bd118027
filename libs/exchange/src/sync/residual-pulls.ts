/** Pulls of what one round has left of replicas, that are under way to the workers that computed them. Whoever is gone, or has nothing, answers with nothing. */
import type { FrameHeader } from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';
import { sendResidualPull } from '../transfer/residuals.js';
import type { ShardLink } from '../transfer/shard-transfer.js';

/** The connection of a worker; `awaited`: it has not come yet, to a standby that was promoted. */
export type Holder = ShardLink | 'awaited' | undefined;

interface Pulled {
  readonly replica: number;
  readonly chunk: number;
  link: Holder;
  readonly answer: Promise<Uint8Array | undefined>;
  readonly resolve: (bytes: Uint8Array | undefined) => void;
  payload: Uint8Array | undefined;
}

export class ResidualPulls {
  private readonly underWay = new Map<string, Pulled>();

  constructor(
    readonly round: number,
    private readonly holderOf: (replica: number) => Holder,
    private readonly numbers: () => FrameNumbers,
  ) {}

  /** Undefined: nobody has it. It never rejects. */
  pull(replica: number, chunk: number): Promise<Uint8Array | undefined> {
    const key = keyOf(replica, chunk);
    const before = this.underWay.get(key);
    if (before) return before.answer;
    const link = this.holderOf(replica);
    if (!link) return Promise.resolve(undefined);
    let resolve!: Pulled['resolve'];
    const answer = new Promise<Uint8Array | undefined>((done) => (resolve = done));
    const pulled: Pulled = { replica, chunk, link, answer, resolve, payload: undefined };
    this.underWay.set(key, pulled);
    this.send(pulled);
    return answer;
  }

  /** A connection has come. */
  attached(): void {
    for (const pulled of this.underWay.values()) {
      if (pulled.link !== 'awaited') continue;
      pulled.link = this.holderOf(pulled.replica);
      this.send(pulled);
    }
  }

  private send({ link, replica, chunk }: Pulled): void {
    if (link && link !== 'awaited') sendResidualPull(link.connection, this.numbers(), { round: this.round, replica, chunk });
  }

  /** Where the answer to a pull goes; undefined for one that nobody waits for here. */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array | undefined {
    const pulled = this.pulled(link, header);
    return pulled && (pulled.payload = new Uint8Array(header.length));
  }

  /** The answer is whole. @returns false when nobody waits for it here */
  data(link: ShardLink, header: FrameHeader): boolean {
    const pulled = this.pulled(link, header);
    // Its payload went elsewhere: it was pulled for a checkpoint too, and that is the answer to it.
    if (!pulled || (header.length > 0 && !pulled.payload)) return false;
    this.underWay.delete(keyOf(header.nodeLo, header.chunk));
    pulled.resolve(header.length > 0 ? pulled.payload : undefined);
    return true;
  }

  /** A connection is gone, with what was to come over it. Without `link`, all. */
  forget(link?: ShardLink): void {
    for (const [key, pulled] of this.underWay) {
      if (link && pulled.link !== link) continue;
      this.underWay.delete(key);
      pulled.resolve(undefined);
    }
  }

  private pulled(link: ShardLink, { round, nodeLo, chunk }: FrameHeader): Pulled | undefined {
    const pulled = round === this.round ? this.underWay.get(keyOf(nodeLo, chunk)) : undefined;
    return pulled?.link === link ? pulled : undefined;
  }
}

const keyOf = (replica: number, chunk: number): string => `${replica}/${chunk}`;
