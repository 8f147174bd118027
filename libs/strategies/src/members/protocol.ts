/** What the main thread says to its group thread, and what that answers. */
import type { MemberAddress } from '@paceline/collectives';
import type { MessagePort } from 'node:worker_threads';
import type { BatchBuffers, ModelMemory, Share, FromThread } from '../threads/protocol.js';

export interface GroupInit {
  readonly members: readonly MemberAddress[];
  readonly self: number;
  /** UUID of what all processes must have in common. */
  readonly group: string;
  readonly secret: string;
  readonly share: Share;
  readonly transport: 'auto' | 'tcp' | 'unix';
  readonly joinDeadlineMs: number;
  readonly deadlineMs: number;
  /** ANSWERED and ENDED. */
  readonly cells: SharedArrayBuffer;
  readonly port: MessagePort;
}

/** Of the group thread's own cells: answers so far, and whether it has ended. */
export const [ANSWERED, GROUP_ENDED] = [0, 1];
export const GROUP_CELLS = 2;

export interface SharedModel {
  readonly model: number;
  /** What is trained, as text: it must be the same in all processes. */
  readonly plan: string;
  readonly totalLength: number;
  readonly trainableLength: number;
  readonly memory: ModelMemory;
  /** Float32 per example of each output, if somebody reads them. */
  readonly outputs: readonly number[] | undefined;
}

export type ToGroupThread =
  | { readonly kind: 'start'; readonly cells: SharedArrayBuffer; readonly collectors: readonly MessagePort[] }
  | { readonly kind: 'leave'; readonly reason: string }
  | ({ readonly kind: 'open' } & SharedModel)
  | { readonly kind: 'agree'; readonly what: string }
  | { readonly kind: 'take-over'; readonly model: number; readonly step: number }
  | { readonly kind: 'buffers'; readonly model: number; readonly buffers: BatchBuffers }
  | { readonly kind: 'close'; readonly model: number };

/** Every message but `start` and `leave` is answered once, by `ok` or by an error; what failed in a step comes before the step is over. */
export type FromGroupThread =
  | { readonly kind: 'ok' }
  | { readonly kind: 'cluster'; readonly message: string }
  | { readonly kind: 'lost'; readonly members: readonly number[]; readonly message: string }
  | { readonly kind: 'fault'; readonly message: string }
  | Extract<FromThread, { kind: 'failed' }>;
