/** A standby's link to its primary: dialled until it is open, as the primary may not have begun yet. */
import type { Connection, FrameReceiver } from '../connection.js';
import type { LinkedServer } from '../attempt/server-links.js';
import { PAUSE_MS, type ShardPlaceOptions } from './place-options.js';
import type { ShardMachine } from './shard-machine.js';
import type { Standby } from './standby.js';

/** The primary may not have begun yet. */
const LINK_WITHIN_MS = 15_000;

export class PrimaryLink<Address extends LinkedServer> {
  private isOver = false;

  constructor(
    private readonly options: ShardPlaceOptions<Address>,
    private readonly shard: ShardMachine,
    private readonly standby: Standby,
    private readonly primary: Address,
  ) {}

  async dial(): Promise<void> {
    const { clock, surroundings } = this.options;
    const sinceMs = clock.now();
    for (;;) {
      let trouble: string;
      try {
        const connection = await surroundings.connect(this.primary);
        if (this.isOver) return connection.close();
        connection.setReceiver(this.receiver(connection, sinceMs));
        connection.sendMessage(surroundings.hello('standby'), this.shard.numbers());
        return;
      } catch (error) {
        trouble = (error as Error).message;
      }
      if (clock.now() - sinceMs > LINK_WITHIN_MS) return this.standby.broken(`the primary cannot be reached: ${trouble}`);
      await new Promise<void>((resolve) => clock.after(PAUSE_MS, resolve));
      if (this.isOver) return;
    }
  }

  /** Nothing is dialled any more. */
  end(): void {
    this.isOver = true;
  }

  private receiver(connection: Connection, sinceMs: number): FrameReceiver {
    const { standby } = this;
    const { clock, surroundings } = this.options;
    let isLinked = false;
    return {
      payloadFor: (header) => standby.payloadFor(header),
      data: (header) => surroundings.guard(() => standby.data(header)),
      message: (message, header) => {
        if (message.type === 'refused') return;
        if (!isLinked) standby.linked(connection);
        isLinked = true;
        surroundings.guard(() => standby.message(message, header));
      },
      closed: ({ description }) => {
        if (this.isOver) return;
        if (isLinked) return surroundings.guard(() => standby.closed(connection, description));
        // It has not begun yet: asked again.
        if (clock.now() - sinceMs > LINK_WITHIN_MS)
          return surroundings.guard(() => standby.broken(`the primary did not take it: ${description}`));
        clock.after(PAUSE_MS, () => !this.isOver && void this.dial());
      },
    };
  }
}
