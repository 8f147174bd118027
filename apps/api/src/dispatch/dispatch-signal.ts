import { Injectable } from '@nestjs/common';

/** Lets whoever changed something that the dispatcher acts on skip the wait for its next tick. */
@Injectable()
export class DispatchSignal {
  private listener: (() => void) | undefined;

  listen(listener: () => void): void {
    this.listener = listener;
  }

  wake(): void {
    this.listener?.();
  }
}
