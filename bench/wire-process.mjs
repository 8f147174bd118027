/** One process of the wire bench: the server or a worker, told what to do over the channel to its parent. */
import { serveFrames, workFrames } from './wire-frames.mjs';
import { serveRaw, workRaw } from './wire-raw.mjs';
import { serveRounds, workRounds } from './wire-rounds.mjs';

const SERVE = { raw: serveRaw, frames: serveFrames, rounds: serveRounds };
const WORK = { raw: workRaw, frames: workFrames, rounds: workRounds };
let running;

process.on('message', async ({ verb, path, options, rounds }) => {
  if (verb === 'serve') {
    running = await SERVE[path](options);
    process.send({ address: running.address });
  } else if (verb === 'work') {
    running = await WORK[path](options);
    process.send({});
  } else if (verb === 'rounds') {
    const before = process.cpuUsage();
    for (let round = 0; round < rounds; round++) await running.round();
    process.send({ cpu: process.cpuUsage(before) });
  } else if (verb === 'cpu') {
    process.send({ cpu: process.cpuUsage() });
  } else {
    await running.close();
    process.send({});
  }
});
process.on('disconnect', () => process.exit());
