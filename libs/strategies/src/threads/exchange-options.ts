/** What an exchange over compute threads is made of. */
import type { GroupThread } from '../members/group-link.js';
import type { OuterRule } from '../update-rule.js';
import type { FragmentRules } from './fragments.js';
import type { DeviceProcesses } from '../devices/device-processes.js';
import type { Pipeline, Share } from './protocol.js';

export interface ThreadExchangeOptions {
  readonly threads: number;
  readonly replicas: number;
  readonly deadlineMs: number;
  /** Threads that share sums and updates by ranges of chunks. */
  readonly updaters: number;
  /** Engines take the new parameters at the end of a step, rather than at the beginning of the next. */
  readonly loadsEarly: boolean;
  /** Other processes that train the same models; `replicas` are those of all. */
  readonly group?: GroupThread;
  /** Replicas train alone. */
  readonly local?: LocalTraining;
  /** Each model is cut into stages, one for each thread of a pipeline; each pipeline is a replica. */
  readonly pipeline?: Pipeline;
  /** A process for each thread, which computes its replicas. */
  readonly devices?: DeviceProcesses | undefined;
}

/** How replicas train alone; `steps` lie between two averages. With one fragment and no delay a model is averaged as a whole. */
export interface LocalTraining extends FragmentRules {
  readonly outer: OuterRule;
  /** Each replica goes on with its own optimizer after an average of the whole model. */
  readonly keepsSlots: boolean;
  /** Steps of a model that replicas take together before they take any alone. */
  readonly syncSteps: number;
}

export const isStreaming = ({ fragments, delay }: FragmentRules): boolean => fragments > 1 || delay > 0;

export const shareOf = ({ group, replicas }: ThreadExchangeOptions): Share =>
  group?.share ?? { replicas, from: 0, to: replicas, nodes: [{ lo: 0, hi: replicas }] };
