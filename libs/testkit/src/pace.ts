/**
 * Makes processes slow from outside: each is stopped for the rest of a short period once it has used its share of CPU time (as cpulimit
 * does). A run then lasts as long as a fault needs at the price of few rounds, on a fast machine and on a busy one alike,
 * and no code of the product knows about it. The pauses stay far below every deadline of the data plane.
 */
import { readFileSync } from 'node:fs';
import { isAlive } from '@paceline/runtime';

const PERIOD_MS = 300;
const LOOK_MS = 10;
/** A clock tick in /proc/PID/stat, on every Linux that Node runs on. */
const TICK_MS = 10;

export interface Pace {
  /** Times that a process was stopped, to assert that the pace was held. */
  readonly stops: number;
  /** Lets everybody run freely again. */
  end(): void;
}

/** @param pids asked for again and again, since processes come and go @param share of one core, e.g. 0.2 */
export function pace(pids: () => readonly number[], share: number): Pace {
  let stops = 0;
  let periodStartedAt = performance.now();
  let usedMs = new Map<number, number>();
  const stopped = new Set<number>();
  /** Resumes only processes that are still listed: any other belongs to somebody else. */
  const resume = (present: readonly number[]): void => {
    for (const pid of stopped) if (present.includes(pid)) signal(pid, 'SIGCONT');
    stopped.clear();
  };
  const timer = setInterval(() => {
    const now = performance.now();
    const present = pids();
    if (now - periodStartedAt >= PERIOD_MS) {
      periodStartedAt = now;
      resume(present);
      usedMs = new Map(present.map((pid) => [pid, cpuMs(pid)]));
    }
    for (const pid of present) {
      const since = usedMs.get(pid);
      if (since === undefined) usedMs.set(pid, cpuMs(pid));
      else if (!stopped.has(pid) && cpuMs(pid) - since > share * PERIOD_MS) {
        signal(pid, 'SIGSTOP');
        stopped.add(pid);
        stops++;
      }
    }
  }, LOOK_MS);
  return {
    get stops() {
      return stops;
    },
    end() {
      clearInterval(timer);
      resume([...stopped]);
    },
  };
}

function signal(pid: number, name: NodeJS.Signals): void {
  if (isAlive(pid)) process.kill(pid, name);
}

function cpuMs(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = text.slice(text.lastIndexOf(') ') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return 0; // the process is gone
  }
}
