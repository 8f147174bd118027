/** The thread of describe-thread.ts: describes one model, answers and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { describeModel, type DescribeOptions, type ModelPart } from './describe.js';
import type { DescribeReply } from './describe-thread.js';
import { messageOf, ModelError } from './model-error.js';

const { spec, options } = workerData as { spec: ModelPart; options: DescribeOptions };

async function reply(): Promise<DescribeReply> {
  try {
    return { kind: 'described', description: await describeModel(spec, options) };
  } catch (error) {
    if (error instanceof ModelError) return { kind: 'refused', path: error.path, message: error.message };
    return { kind: 'failed', message: messageOf(error) };
  }
}

parentPort?.postMessage(await reply());
