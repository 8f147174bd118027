/** The thread of describe-thread.ts: describes one model after the other. */
import { parentPort } from 'node:worker_threads';
import { describeModel } from './describe.js';
import type { DescribeReply, DescribeRequest } from './describe-thread.js';
import { messageOf, ModelError } from '../errors/model-error.js';

const post = (reply: DescribeReply): void => parentPort?.postMessage(reply);

async function answer({ spec, format }: DescribeRequest): Promise<DescribeReply> {
  try {
    return { kind: 'described', description: await describeModel(spec, format) };
  } catch (error) {
    if (error instanceof ModelError) return { kind: 'refused', path: error.path, message: error.message };
    return { kind: 'failed', message: messageOf(error) };
  }
}

parentPort?.on('message', (request: DescribeRequest) => {
  post({ kind: 'begun' });
  void answer(request).then(post);
});
