/** Who waits in a worker for something that another worker brings: looked at again whenever something has come, and given up after a while without progress. */
import { TaskError, type TaskPlace } from '@paceline/collectives';
import { CODES } from './messages.js';

interface Waiting {
  look(): void;
  give(error: TaskError): void;
}

/** A wait is counted in looks: the time for which this process was stopped is no wait. */
const LOOK_MS = 1_000;

export class Waits {
  private readonly waiting = new Set<Waiting>();

  constructor(
    private readonly clock: TaskPlace['clock'],
    /** Bytes that have come: as long as they grow, nobody is given up. */
    private readonly moved: () => number,
  ) {}

  /**
   * @param look what is waited for, undefined as long as it is not there; what it throws ends the wait
   * @param late the error when nothing has come for the deadline
   */
  until<T>(look: () => T | undefined, deadlineMs: number, late: () => TaskError): Promise<T> {
    return new Promise((resolve, reject) => {
      let cancel = (): void => undefined;
      let [before, waitedMs] = [this.moved(), 0];
      const end = (act: () => void): void => {
        this.waiting.delete(waiting);
        cancel();
        act();
      };
      const waiting: Waiting = {
        look: () => {
          try {
            const found = look();
            if (found !== undefined) end(() => resolve(found));
          } catch (error) {
            end(() => reject(error as Error));
          }
        },
        give: (error) => end(() => reject(error)),
      };
      const lookMs = Math.min(LOOK_MS, deadlineMs);
      const tick = (): void => {
        const now = this.moved();
        waitedMs = now === before ? waitedMs + lookMs : 0;
        before = now;
        if (waitedMs < deadlineMs) {
          cancel = this.clock.after(lookMs, tick);
          return;
        }
        waiting.give(late());
      };
      this.waiting.add(waiting);
      cancel = this.clock.after(lookMs, tick);
      waiting.look();
    });
  }

  /** Something has come. */
  look(): void {
    for (const each of [...this.waiting]) each.look();
  }

  /** Nothing that is waited for will come. */
  end(error: TaskError): void {
    for (const each of [...this.waiting]) each.give(error);
  }
}

/** What a worker says of a process that it misses. @param place in the roster */
export const missing = (place: number, message: string): TaskError => new TaskError(CODES.member, JSON.stringify([place, message]));
