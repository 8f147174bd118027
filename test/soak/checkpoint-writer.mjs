/**
 * Writes a checkpoint over another with the real disk and pauses for ever before its n-th operation on the disk, saying so; the
 * test that started it then kills it. Arguments: folder, n.
 */
import { Checkpoints, nodeDisk, openStore } from '@paceline/storage';
// This one file alone: all of the testkit takes a second to load, and this script is started some fifty times.
import { checkpointAt, FIXTURE_RUN_ID, writeCheckpoint } from '../../libs/testkit/dist/checkpoint-fixture.js';

const [, , folder, pauseAt] = process.argv;
let operations = 0;

async function pass(name) {
  if (operations++ !== Number(pauseAt)) return;
  process.stdout.write(`PAUSED at ${name}\n`);
  setInterval(() => undefined, 60_000);
  await new Promise(() => undefined);
}

const counting = (object, prefix) =>
  new Proxy(object, {
    get(target, name) {
      if (typeof target[name] !== 'function') return target[name]; // a promise that resolves to this asks for `then`
      return async (...args) => {
        await pass(`${prefix}${name}`);
        const result = await target[name](...args);
        return name === 'create' ? counting(result, 'file.') : result;
      };
    },
  });

const checkpoints = new Checkpoints(openStore(folder, counting(nodeDisk, '')));
await writeCheckpoint(checkpoints, checkpointAt(1, 20));
await checkpoints.sweep(FIXTURE_RUN_ID, { keepLast: 1, keepBest: false });
process.stdout.write(`DONE after ${operations}\n`);
