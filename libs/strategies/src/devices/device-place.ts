/** Where the compute thread of a device and its process meet: a Unix socket in a folder of their own. Who does not know their secret is refused. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { processClock, socketTransport, Tasks, type Roster } from '@paceline/collectives';

/** The kernel bounds the path of a socket: at most 103 bytes everywhere, of which the name of the folder takes 24 and that of the socket 25. */
const MOST_PARENT_BYTES = 103 - '/paceline-device-123456/'.length - 'ab0123456789abcdef01.sock'.length;

/** Makes the folder of a device, which nobody else may enter. @param parent for temporary files; /tmp where its path is too long for a socket */
export function folderOfDevice(parent = tmpdir()): string {
  return mkdtempSync(join(Buffer.byteLength(parent) > MOST_PARENT_BYTES ? '/tmp' : parent, 'paceline-device-'));
}

interface Place {
  readonly name: string;
  readonly folder: string;
  readonly group: string;
  readonly secret: string;
}

/** @param self THREAD or PROCESS */
export function tasksAt({ name, folder, group, secret }: Place, self: number): Tasks {
  const address = { host: '', port: 0 };
  const roster: Roster = {
    tasks: [
      { ...address, task: { type: 'chief', index: 0 } },
      { ...address, task: { type: 'worker', index: 0 } },
    ],
    names: ['the program', `device ${name}`],
    group,
  };
  const transport = socketTransport({ members: roster.tasks, self, group, kind: 'unix', folder });
  return new Tasks({ roster, self, secret, kind: 'unix', clock: processClock, transport });
}
