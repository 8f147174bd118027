/** A connection between two members that have proved themselves. What comes before somebody takes it over is kept. */
import type { Connection } from '@paceline/exchange';
import { ProtocolError, type FrameHeader, type Message } from '@paceline/protocol';

export interface LinkHandler {
  message(message: Message): void;
  payloadFor(header: FrameHeader): Uint8Array;
  data(header: FrameHeader): void;
  closed(why: string): void;
}

export class Link {
  private handler: LinkHandler | undefined;
  private readonly kept: Message[] = [];
  private end: string | undefined;

  /** @param onEnd hears why the connection has ended, before who takes it over */
  constructor(
    readonly connection: Connection,
    onEnd: (why: string) => void = () => undefined,
  ) {
    connection.setReceiver({
      message: (message) => {
        if (this.handler) this.handler.message(message);
        else if (this.kept.push(message) > 4) throw new ProtocolError('BAD_MESSAGE', 'too much is said before the group is complete');
      },
      payloadFor: (header) => {
        if (!this.handler) throw new ProtocolError('BAD_ROUND', 'data came before the group was complete');
        return this.handler.payloadFor(header);
      },
      data: (header) => this.handler!.data(header),
      closed: ({ description }) => {
        this.end = description;
        onEnd(description);
        this.handler?.closed(description);
      },
    });
  }

  get isOpen(): boolean {
    return this.connection.isOpen;
  }

  /** Nobody has it for now. @param unread what has come for the next one */
  release(unread: readonly Message[]): void {
    this.handler = undefined;
    this.kept.push(...unread);
  }

  take(handler: LinkHandler): void {
    this.handler = handler;
    for (const message of this.kept.splice(0)) handler.message(message);
    if (this.end !== undefined) handler.closed(this.end);
  }
}
