/** A process that trains one recording: it gets its task as a message, and answers with one. */
import type { RecordedAnswer, RecordedTask } from './protocol.js';
import { serveRecorded, trainRecorded } from './train-recorded.js';

process.once('message', (task: RecordedTask) => void answer(task));
process.once('disconnect', () => process.exit(1)); // nobody waits any more

async function answer(task: RecordedTask): Promise<void> {
  const { kind, member } = task.strategy;
  // A server goes on until it is ended.
  const serves = member !== undefined && kind !== 'multi-worker-mirrored' && member.task.type !== 'chief';
  const found = await (serves ? serveRecorded(member) : trainRecorded(task)).then(
    (result): RecordedAnswer => ({ ok: true, result }),
    (error: Error): RecordedAnswer => ({ ok: false, message: error.message }),
  );
  process.send!(found, () => process.exit(0));
}
