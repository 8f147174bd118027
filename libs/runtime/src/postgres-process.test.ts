/** What a system tells of a process decides; the systems here do not let anyone see where another user's process works. */
import { expect, it } from 'vitest';
import { isPostgresOf, type SystemView } from './postgres-process.js';

const CLUSTER = '/data/postgres/cluster';
const refused = (code: string): never => {
  throw Object.assign(new Error(code), { code });
};

/** Process 7, and a cluster of user 70. */
function system(argv: string[] | undefined, { cwd, uid = 70 }: { cwd?: number; uid?: number } = {}): SystemView {
  const inodes: Record<string, number> = { [CLUSTER]: 1, '/srv/the-same': 1, '/data/other': 2, '/proc/self/cwd': 1 };
  return {
    read: () => argv?.join('\0') ?? refused('ENOENT'),
    stat(path) {
      if (path === '/proc/7') return { dev: 1, ino: 9, uid };
      const ino = path === '/proc/7/cwd' ? (cwd ?? refused('EACCES')) : inodes[path];
      return ino === undefined ? refused('ENOENT') : { dev: 1, ino, uid: 70 };
    },
  };
}
const server = (folder: string): string[] => ['/opt/bin/postgres', '-D', folder, '-c', 'port=5432', ''];

it.each<[string, SystemView, boolean | undefined]>([
  ['works inside of it', system(server('/proc/self/cwd'), { cwd: 1 }), true],
  ['works elsewhere', system(server(CLUSTER), { cwd: 2 }), false],
  ['is another program', system(['sleep', '60']), false],
  ['names it', system(server(CLUSTER)), true],
  ['names it by another path', system(server('/srv/the-same')), true],
  ['names it as another user', system(server(CLUSTER), { uid: 71 }), undefined],
  ['names another cluster', system(server('/data/other')), undefined],
  ['names a folder that is not here', system(server('/data/gone')), undefined],
  ['names where it works', system(server('/proc/self/cwd')), undefined],
  ['names none', system(['postgres']), undefined],
  ['is gone, or hidden', system(undefined), undefined],
])('a process that %s', (_, view, expected) => {
  expect(isPostgresOf(CLUSTER, 7, view)).toBe(expected);
});
