/**
 * A process with the engine of one device. Its parent says over their channel where to wait for a compute thread; when the channel ends, or the connection of the
 * thread, nobody waits for it any more, and it ends at once, whatever its engine does.
 */
import { rmSync } from 'node:fs';
import { UnsupportedError } from '../errors.js';
import { TaskError } from '@paceline/collectives';
import { CODES } from '../servers/messages.js';
import { DeviceHost } from './device-host.js';
import { tasksAt } from './device-place.js';
import { PROCESS, type ProcessInit } from './messages.js';

/** Known before anything is said, so that whatever happens nothing is left behind. */
const folder = process.argv[2]!;
const removeFolder = (): void => rmSync(folder, { recursive: true, force: true });

/** Not by `process.exit`, which waits for threads: native code may never come back. */
function end(): void {
  removeFolder();
  process.kill(process.pid, 'SIGKILL');
}

process.on('SIGINT', () => undefined); // Ctrl-C reaches the whole group: the program decides
process.once('disconnect', end);
process.once('message', (init: ProcessInit) => void serve(init));
if (!process.connected) end(); // while this file was loaded

async function serve(init: ProcessInit): Promise<void> {
  const host = new DeviceHost(init.engine);
  const tasks = tasksAt({ ...init, folder }, PROCESS);
  await tasks.listen((arrival) => {
    removeFolder(); // the one that was waited for has come
    const peer = tasks.peerOf(
      arrival,
      async (name, received) => {
        try {
          return await host.handler(name, received);
        } catch (error) {
          if (error instanceof UnsupportedError) throw new TaskError(CODES.unsupported, JSON.stringify([error.what, error.reason]));
          throw error;
        }
      },
      end,
    );
    host.serve(peer);
  });
}
