/**
 * Functions of `run` in the replicas of a device. The process calls them, and says when its replicas have come together; the thread takes their values to those of the
 * other devices (threads/meeting.ts), and the sum back.
 */
import { TaskError } from '@paceline/collectives';
import type { Encoded } from '../replicas/per-replica.js';
import { packed, unpacked } from '../servers/function-protocol.js';
import { bytesOf, CODES, type Reached, type StepFailure } from '../servers/messages.js';
import { ENDED, FAILED_POINT, type Meeting, type Outcome } from '../threads/meeting.js';
import type { FromThread, ReplicaCall, Share } from '../threads/protocol.js';
import type { DeviceLink } from './device-link.js';

/** Every replica is a node by itself: its values come as they are, and all are added up in one place. */
export const leavesOf = (replicas: readonly number[], all: number): Share => ({
  replicas: all,
  from: replicas[0]!,
  to: replicas.at(-1)! + 1,
  nodes: replicas.map((replica) => ({ lo: replica, hi: replica + 1 })),
});

export class DeviceFunctions {
  constructor(
    private readonly link: DeviceLink,
    private readonly share: Share,
    private readonly meeting: Pick<Meeting, 'meet'>,
  ) {}

  async load({ module, name }: Pick<ReplicaCall, 'module' | 'name'>): Promise<FromThread> {
    const { link, share } = this;
    try {
      await link.request('load', { body: { module, name, share } }, { deadlineMs: link.startMs, answers: [CODES.function] });
      return { kind: 'ok' };
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      return { kind: 'failed', isFunction: true, message: error.message };
    }
  }

  async call({ module, name, args }: ReplicaCall): Promise<FromThread> {
    const failures: StepFailure[] = [];
    let received = await this.link.request('run', { body: { module, name }, parts: [packed(args)] });
    for (;;) {
      const { isOver, point, failures: own } = received.body as Reached;
      failures.push(...own);
      if (isOver) return this.answer(failures, received.parts[0]);
      const outcome = this.meet(failures.length > 0 ? FAILED_POINT : point[0], point[2], received.parts);
      if (outcome.kind === 'aborted' && outcome.reason !== undefined) failures.push({ replica: this.share.from, message: outcome.reason });
      const parts = outcome.kind === 'combined' ? [bytesOf(outcome.values)] : [];
      received = await this.link.request('meet', { body: { goesOn: outcome.kind !== 'aborted' }, parts });
    }
  }

  /** @param parts the values of each replica, where they wait in a collective operation */
  private meet(kind: number, form: number, parts: readonly Uint8Array[]): Outcome {
    const { from, to } = this.share;
    const points = Array.from({ length: to - from }, (_, i) => {
      const part = kind === ENDED || kind === FAILED_POINT ? undefined : parts[i];
      const values = part ? new Float32Array(part.buffer, part.byteOffset, part.byteLength / 4) : new Float32Array(0);
      return { replica: from + i, kind, form, values };
    });
    return this.meeting.meet(points);
  }

  private answer(failures: readonly StepFailure[], results: Uint8Array | undefined): FromThread {
    const [first] = [...failures].sort((a, b) => (a.replica ?? -1) - (b.replica ?? -1));
    if (first)
      return { kind: 'failed', replica: first.replica ?? this.share.from, message: `${first.message} (on device ${this.link.name})` };
    return { kind: 'ok', results: unpacked<Encoded[]>(results) };
  }
}
