/** Where the compute thread of a device and its process meet: a Unix socket in a folder of their own. Who does not know their secret is refused. */
import { processClock, socketTransport, Tasks, type Roster } from '@paceline/collectives';

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
