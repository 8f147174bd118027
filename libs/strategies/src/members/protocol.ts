/** What the main thread says to its group thread, and what that answers. */
import type { Failure, MemberAddress, NextView, Timing, Topology } from '@paceline/collectives';
import type { MessagePort } from 'node:worker_threads';
import type { BatchBuffers, FromThread, MeetingMemory, ModelMemory, Share } from '../threads/protocol.js';
import type { Told } from './journal.js';
import type { LowRankExchangeOptions } from './low-rank-exchange.js';
import type { MemberCodec } from './packed-sums.js';
import type { ReplicaArray } from '../replicas/per-replica.js';

export interface GroupInit {
  readonly members: readonly MemberAddress[];
  readonly self: number;
  /** UUID of what all processes must have in common. */
  readonly group: string;
  readonly secret: string;
  readonly share: Share;
  /** How sums of gradients travel. */
  readonly codec: MemberCodec;
  /** With power-sgd: columns of the factors of a matrix. */
  readonly rank: number;
  /** Seeds the random numbers of codecs. */
  readonly seed: number;
  readonly transport: 'auto' | 'tcp' | 'unix';
  /** Where this process listens, if not at its address in the cluster. */
  readonly listenHost: string | undefined;
  /** Of each member, by names that are equal where the host is. */
  readonly hosts: readonly string[];
  /** Topologies are timed when the group has come together. */
  readonly probes: boolean;
  readonly joinDeadlineMs: number;
  readonly deadlineMs: number;
  /** What becomes of the others when a member is lost. */
  readonly onMemberLoss: 'stop' | 'continue';
  /** ANSWERED and ENDED. */
  readonly cells: SharedArrayBuffer;
  /** Float64: bytes sent, and bytes received. */
  readonly traffic: SharedArrayBuffer;
  readonly port: MessagePort;
}

/** The group thread's own cells: answers so far, and whether it has ended. */
export const [ANSWERED, GROUP_ENDED] = [0, 1];
export const GROUP_CELLS = 2;

export interface SharedModel {
  readonly model: number;
  /** What is trained, as text: it must be the same in all processes. */
  readonly plan: string;
  readonly totalLength: number;
  readonly trainableLength: number;
  /** The trainable ones. */
  readonly variables: LowRankExchangeOptions['variables'];
  readonly memory: ModelMemory;
  /** Elements of each, where replicas exchange one at a time. */
  readonly fragments: readonly number[];
  readonly topology: Topology;
  /** Float32 per example of each output. */
  readonly outputs: readonly number[];
  /** Whether somebody reads the outputs of a step: metrics do. */
  readonly readsOutputs: boolean;
  /** It is laid out for another view. */
  readonly isAgain?: boolean;
}

export type ToGroupThread =
  | { readonly kind: 'start'; readonly cells: SharedArrayBuffer; readonly collectors: readonly MessagePort[] }
  | { readonly kind: 'leave'; readonly reason: string }
  | ({ readonly kind: 'open' } & SharedModel)
  | { readonly kind: 'agree'; readonly what: string }
  /** Whether this process was started again, and the others go on without it. */
  | { readonly kind: 'is-new' }
  /** A line of the journal. `settles`: with it what replicas answered before is not needed any more. Not answered. */
  | { readonly kind: 'note'; readonly line: string; readonly outputs: readonly Float32Array[] | undefined; readonly settles: boolean }
  /** Not answered. */
  | { readonly kind: 'close-journal'; readonly why: string }
  /** For a process that was started again: lines that follow those that it knows. */
  | { readonly kind: 'more'; readonly known: number }
  /** The others are to let it in. */
  | { readonly kind: 'enter'; readonly known: number }
  /** The last lines go to who was let in. */
  | { readonly kind: 'hand-over'; readonly view: NextView }
  /** Members were lost: this process lays its work out for those that are left. */
  | { readonly kind: 'adopt'; readonly view: NextView; readonly share: Share }
  /** What was in hand when a member was lost: a step or prediction of a model. Whoever has completed it hands its result to the others. */
  | { readonly kind: 'settle'; readonly view: NextView; readonly inHand: number | undefined }
  /** Asks for what was measured. */
  | { readonly kind: 'timings' }
  /** `staged`: slots that somebody may have written to, whole ones, where each process keeps a part. */
  | {
      readonly kind: 'take-over';
      readonly model: number;
      readonly step: number;
      readonly staged: readonly SharedArrayBuffer[] | undefined;
      /** The place of the member whose they are, where a view is laid out; the first one where left out. */ readonly from?: number;
    }
  /** Gathers the parts of all processes. */
  | { readonly kind: 'slots'; readonly model: number; readonly step: number; readonly into: readonly SharedArrayBuffer[] }
  /** Adds up a vector of the replicas, which lies where their gradients are. */
  | { readonly kind: 'average'; readonly model: number; readonly vector: number; readonly step: number }
  /** The same of a fragment, in its own place. */
  | { readonly kind: 'fragment'; readonly model: number; readonly fragment: number; readonly step: number }
  | { readonly kind: 'buffers'; readonly model: number; readonly buffers: BatchBuffers }
  | { readonly kind: 'close'; readonly model: number }
  | { readonly kind: 'functions'; readonly memory: MeetingMemory }
  | { readonly kind: 'share'; readonly what: string; readonly values: readonly ReplicaArray[] };

/** Every message but `start`, `leave`, `note` and `close-journal` is answered once, by `ok`, or by an error; timings come before the `ok`; what failed in a step comes before the step is over. */
export type FromGroupThread =
  | { readonly kind: 'ok'; readonly shared?: readonly ReplicaArray[] }
  | { readonly kind: 'timings'; readonly timings: readonly Timing[] }
  | { readonly kind: 'cluster'; readonly message: string }
  /** The others go on without members that were lost; nothing of what was asked was done, or it was done before. */
  | { readonly kind: 'view'; readonly view: NextView }
  /** Of a step or prediction that was in hand. */
  | { readonly kind: 'settled'; readonly failures: readonly Failure[] }
  | { readonly kind: 'is-new'; readonly isNew: boolean }
  | ({ readonly kind: 'told' } & Told)
  | { readonly kind: 'entered'; readonly view: NextView }
  /** The others have gone on without this process before it had their state: it asks them again. */
  | { readonly kind: 'not-let-in'; readonly why: string }
  | { readonly kind: 'lost'; readonly members: readonly number[]; readonly message: string }
  | { readonly kind: 'fault'; readonly message: string }
  | Extract<FromThread, { kind: 'failed' }>;
