/**
 * What a compute thread asks the process of its device. Bodies are JSON; vectors travel as parts, as little-endian float32.
 *
 * | who asks | name | body | parts | answer |
 * |---|---|---|---|---|
 * | thread | `open` | `{ model }` | DevicePlan as text | |
 * | thread | `close` | `{ model }` | | |
 * | thread | `step` | DeviceStep | rows of the device: inputs, targets, weights | Stepped; the sum of each of its nodes, and outputs |
 * | thread | `predict` | DevicePrediction | rows of the device: inputs | Stepped; outputs |
 * | process | `read` | `{ model }` | | the parameters, where it has those of another generation |
 * | thread | `load`, `run`, `meet` | as workers are asked (servers/messages.ts) | | |
 */
import type { ThreadEngine } from '../threads/protocol.js';

/** The first message over the channel of the process. Its argument is the folder where its socket lies until the thread has come. */
export interface ProcessInit {
  /** Of the device. */
  readonly name: string;
  readonly engine: ThreadEngine;
  readonly group: string;
  readonly secret: string;
}

export interface DevicePrediction {
  readonly model: number;
  /** The parameters that count. */
  readonly generation: number;
  /** Rows of the whole batch. */
  readonly count: number;
  /** Of the optimizer, from 1. */
  readonly step: number;
  readonly rowsAtOnce: number;
}

export interface DeviceStep extends Omit<DevicePrediction, 'rowsAtOnce'> {
  readonly rate: number;
  /** Metrics read the outputs. */
  readonly readsOutputs: boolean;
}

/** Places of the two in their roster. */
export const [THREAD, PROCESS] = [0, 1];
