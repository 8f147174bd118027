/**
 * Nothing stays behind when a launcher is SIGKILLed.
 *
 * PostgreSQL and Redis cannot watch their parent, so a guard does: a /bin/sh process (about 1 MB, in its own session, out of reach of
 * the terminal's Ctrl-C) whose stdin is a pipe held by the launcher only. It learns which processes and folders
 * belong to the launcher; when the pipe closes it signals those processes (databases last), waits, kills what is left, and removes the folders.
 * A launcher that ends in order has taken everything off the list before. Rejected: a second Node process (40 MB, 40 ms), and
 * PR_SET_PDEATHSIG, which Node cannot set.
 *
 * A pid alone may have been given to another process meanwhile, so on Linux its start time is compared first.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { startTicks } from './end-process.js';

const SCRIPT = `
pids=''; dirs=''
nl='
'
same() { [ "$2" = - ] || [ ! -r "/proc/$1/stat" ] || [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20)" = "$2" ]; }
while read -r verb rest; do
  case $verb in
    watch) pids="$pids$rest$nl" ;;
    forget) pids=$(printf '%s' "$pids" | grep -v "^$rest "); [ -z "$pids" ] || pids="$pids$nl" ;;
    remove) dirs="$dirs$rest$nl" ;;
    keep) dirs=$(printf '%s' "$dirs" | grep -vxF "$rest"); [ -z "$dirs" ] || dirs="$dirs$nl" ;;
  esac
done
signal_all() { printf '%s' "$pids" | while read -r pid ticks signal rank; do if [ "$rank" = "$1" ] && same "$pid" "$ticks"; then kill "-\${2:-$signal}" "$pid" 2>/dev/null; fi; done; }
any_left() { printf '%s' "$pids" | { while read -r pid ticks signal rank; do if [ "$rank" = "$1" ] && kill -0 "$pid" 2>/dev/null && same "$pid" "$ticks"; then exit 0; fi; done; exit 1; }; }
for rank in 1 2; do
  signal_all $rank
  tries=0
  while any_left $rank; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || { signal_all $rank KILL; break; }
    sleep 0.1
  done
done
printf '%s' "$dirs" | while read -r dir; do rm -rf "$dir"; done
`;

let guard: ChildProcess | undefined;
let entries = 0;

function tell(line: string): void {
  if (!guard) {
    guard = spawn('/bin/sh', ['-c', SCRIPT], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin' },
    });
    guard.on('error', () => undefined); // without a shell there is no guard; an orderly end still cleans up
    guard.stdin!.on('error', () => undefined);
    guard.unref();
    (guard.stdin as unknown as { unref(): void }).unref();
  }
  guard.stdin!.write(`${line}\n`);
}

/** Closes the guard once its list is empty, so that a process that has cleaned up leaves nothing. */
function release(line: string): void {
  tell(line);
  entries -= 1;
  if (entries === 0) {
    guard!.stdin!.end();
    guard = undefined;
  }
}

export interface GuardOptions {
  readonly signal?: 'TERM' | 'INT';
  /** A database: it is ended after those that use it, which then end in order instead of waiting for it. */
  readonly isDatabase?: boolean;
}

/** @returns a function that takes the process off the list: call it once it has ended */
export function guardProcess(pid: number, { signal = 'TERM', isDatabase = false }: GuardOptions = {}): () => void {
  entries += 1;
  tell(`watch ${pid} ${startTicks(pid) ?? '-'} ${signal} ${isDatabase ? 2 : 1}`);
  return once(() => release(`forget ${pid}`));
}

/** @returns a function that takes the folder off the list: call it once it was removed or shall stay */
export function guardDirectory(directory: string): () => void {
  if (!directory.startsWith('/') || directory.includes('\n') || directory.split('/').length < 3)
    throw new Error(`refusing to guard ${JSON.stringify(directory)}`);
  entries += 1;
  tell(`remove ${directory}`);
  return once(() => release(`keep ${directory}`));
}

function once(act: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    act();
  };
}
