/** Bytes between the workers and servers of a run, and how many times fewer they are than without a codec. */
import type { Run, RunSummary } from '@paceline/client';
import { clean } from './terminal/clean.js';
import { bytes } from './terminal/format.js';

type Counts = Omit<NonNullable<RunSummary['traffic']>, '__typename'>;

/** From here on a codec is worth a word; headers and control messages alone stay below. */
const LEAST_TIMES = 1.05;

function amount(sent: number, dense: number): string {
  const times = sent > 0 ? dense / sent : 1;
  return times < LEAST_TIMES ? bytes(sent) : `${bytes(sent)} (${times < 10 ? times.toFixed(1) : Math.round(times)}x fewer)`;
}

/** `12.1 MB (4.0x fewer) to servers, 48.3 MB to workers`. */
export const trafficText = ({ toServersBytes, toWorkersBytes, denseToServersBytes, denseToWorkersBytes }: Counts): string =>
  `${amount(toServersBytes, denseToServersBytes)} to servers, ${amount(toWorkersBytes, denseToWorkersBytes)} to workers`;

/** With `strategy: auto`: what was picked, and why. */
export function printStrategy(picked: Run['pickedStrategy'], line: (name: string, value: string) => void): void {
  if (!picked) return;
  line('strategy', `auto has picked ${clean(picked.kind, 40)}`);
  line('', clean(picked.why, 2000));
}

/** With `codec: auto`: `int8, parameters int8, from round 12 on`, and why. */
export function printCodec(codec: Run['codec'], line: (name: string, value: string) => void): void {
  if (!codec) return;
  const { kind, parameters, fromRound, why } = codec;
  line(
    'codec',
    kind === 'none' && parameters === 'float32'
      ? 'auto has picked none'
      : `auto has picked ${kind}, parameters ${parameters}, from round ${fromRound} on`,
  );
  line('', clean(why, 1000));
}

/** What the codec had kept of replicas and is gone: `4 residuals of replicas are lost (moved): from round 12 on the bits are not those of an undisturbed run`. */
export function printLostResiduals(lost: Run['lostResiduals'], line: (name: string, value: string) => void): void {
  if (!lost) return;
  const { replicas, causes, fromRound } = lost;
  const what = replicas === 1 ? '1 residual of a replica is' : `${replicas} residuals of replicas are`;
  const why = clean(causes.join(', '), 100);
  line('residuals', `${what} lost (${why}): from round ${fromRound} on the bits are not those of an undisturbed run`);
}

/** The line of the run, and one for each worker where there are several. */
export function printTraffic(traffic: RunSummary['traffic'] | Run['traffic'], line: (name: string, value: string) => void): void {
  if (!traffic || traffic.toServersBytes === 0) return;
  line('network', trafficText(traffic));
  const workers = 'workers' in traffic ? traffic.workers : [];
  if (workers.length > 1) for (const { workerId, ...counts } of workers) line('', `${clean(workerId, 60)}: ${trafficText(counts)}`);
}
