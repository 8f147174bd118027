/**
 * A store that processes reach over the network: a request travels, is carried out in one piece, and its answer travels back. On each
 * way it may be lost with the store, with the network between, or with the process that asked: then the process does not know
 * whether it was carried out.
 */
import type { Network } from './network.js';
import type { SimProcess } from './process.js';
import type { World } from './world.js';

export interface Surroundings {
  readonly world: World;
  readonly network: Pick<Network, 'count' | 'isBlocked' | 'latency'>;
}

export abstract class SimStore<Around extends Surroundings = Surroundings> {
  isAway = false;

  constructor(
    protected readonly around: Around,
    private readonly name: string,
  ) {}

  /** How a caller sees that the store did not answer. */
  protected abstract outage(what: string): Error;

  /** @param deadlineMs after which a caller gives up that gets no answer at all */
  protected call<T>(from: SimProcess, what: string, deadlineMs: number, act: () => T): Promise<T> {
    const { world, network } = this.around;
    return new Promise((resolve, reject) => {
      const settle = (done: () => void): void => {
        world.microtasksWait = true;
        from.run(done);
      };
      const fail = (afterMs: number): void =>
        void world.schedule(afterMs, `${from.name}: no answer from ${this.name}`, () => settle(() => reject(this.outage(what))));
      world.schedule(this.latencyMs(), `${from.name}: ${what}`, () => {
        if (network.isBlocked(from.host, this.name)) return fail(deadlineMs);
        if (this.isAway) return settle(() => reject(this.outage(what)));
        let result: T;
        try {
          result = act();
        } catch (error) {
          return settle(() => reject(error as Error));
        }
        const isUnanswered = (): boolean => network.isBlocked(this.name, from.host);
        if (isUnanswered()) return fail(deadlineMs);
        // Most answers come at once: they change nothing for anybody else, and events cost time.
        if (!world.random.chance(0.25)) return settle(() => resolve(result));
        world.schedule(this.latencyMs(), `${from.name}: answer of ${this.name}`, () => {
          if (this.isAway) {
            this.around.network.count(`answer of ${this.name} lost`);
            settle(() => reject(this.outage(what)));
          } else if (isUnanswered()) fail(deadlineMs);
          else settle(() => resolve(result));
        });
      });
    });
  }

  private latencyMs(): number {
    return Math.min(this.around.network.latency(), 20);
  }
}
