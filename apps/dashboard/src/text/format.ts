/** Numbers and times as people read them. What is missing or not finite is a dash. */
export const DASH = '–';

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 3 });

type Maybe = number | null | undefined;
const isNumber = (value: Maybe): value is number => typeof value === 'number' && Number.isFinite(value);

/** 182,272 */
export function count(value: Maybe): string {
  return isNumber(value) ? whole.format(value) : DASH;
}

const digits4 = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 });

/** A value of somebody's data, whose unit is not known: 1956, 0.03142, 436,800, 1.2e-7. A year has no comma. */
export function value(given: Maybe): string {
  if (!isNumber(given)) return DASH;
  const size = Math.abs(given);
  if (Number.isInteger(given) && size < 1e9) return size < 10_000 ? String(given) : whole.format(given);
  if (size < 1e-4 || size >= 1e9) return given.toExponential(2);
  return size >= 10_000 ? whole.format(given) : digits4.format(given).replace(',', '');
}

/** 235K, 1.2M: where room is short */
export function compact(value: Maybe): string {
  return isNumber(value) ? short.format(value) : DASH;
}

/** Three significant digits below one, three decimals above: 2.303, 0.0421, 1.2e-7 */
export function loss(value: Maybe): string {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1);
  return size < 1 ? value.toFixed(Math.min(6, 2 - Math.floor(Math.log10(size)))) : value.toFixed(size < 100 ? 3 : 1);
}

/** A fraction as a percentage with two decimals: 97.84 % */
export function accuracy(value: Maybe): string {
  return isNumber(value) ? `${(value * 100).toFixed(2)}\u202f%` : DASH;
}

/** A fraction as a percentage with one decimal, which is 100 only when it is all: 97.8 % */
export function share(fraction: Maybe): string {
  if (!isNumber(fraction)) return DASH;
  const tenths = Math.round(fraction * 1000);
  return `${((fraction < 1 ? Math.min(999, tenths) : tenths) / 10).toFixed(1)}\u202f%`;
}

/** A fraction as a whole percentage, never 100 before all is done. 0.29 times 100 is a little less than 29 in binary. */
export function percent(fraction: Maybe): string {
  if (!isNumber(fraction)) return DASH;
  const value = Math.min(1, Math.max(0, fraction));
  return `${value < 1 ? Math.min(99, Math.floor(value * 100 + 1e-9)) : 100}\u202f%`;
}

/** Examples per second; whole from ten on. */
export function rate(value: Maybe): string {
  if (!isNumber(value)) return DASH;
  return value < 10 ? value.toFixed(1) : whole.format(value);
}

/** 0.4 s, 8 s, 1 min 20 s, 2 h 5 min, 3 d 4 h */
export function duration(seconds: Maybe): string {
  if (!isNumber(seconds) || seconds < 0) return DASH;
  if (seconds < 1) return `${seconds.toFixed(1)}\u202fs`;
  const total = Math.round(seconds);
  const parts: readonly (readonly [number, string])[] = [
    [Math.floor(total / 86_400), 'd'],
    [Math.floor(total / 3600) % 24, 'h'],
    [Math.floor(total / 60) % 60, 'min'],
    [total % 60, 's'],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount}\u202f${unit}`)
    .join(' ');
}

/** How long ago, in one unit. Clocks differ a little: the near future is now. */
export function age(at: string | null | undefined, nowMs: number): string {
  const atMs = at ? Date.parse(at) : Number.NaN;
  if (!Number.isFinite(atMs)) return DASH;
  const seconds = Math.max(0, Math.floor((nowMs - atMs) / 1000));
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${seconds}\u202fs`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}\u202fmin`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}\u202fh`;
  return `${Math.floor(seconds / 86_400)}\u202fd`;
}

/** 145 MB (powers of 1000, as disks and npm count) */
export function bytes(value: Maybe): string {
  if (!isNumber(value)) return DASH;
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const step = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  const scaled = value / 1000 ** step;
  return `${scaled.toFixed(step > 0 && scaled < 10 ? 1 : 0)}\u202f${units[step]}`;
}

/** [0, 1, 2, 5] as "0–2, 5" */
export function ranges(values: readonly number[]): string {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const pieces: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let end = i;
    while (sorted[end + 1] === sorted[end]! + 1) end++;
    pieces.push(end === i ? `${sorted[i]}` : end === i + 1 ? `${sorted[i]}, ${sorted[end]}` : `${sorted[i]}–${sorted[end]}`);
    i = end + 1;
  }
  return pieces.length > 0 ? pieces.join(', ') : DASH;
}

const TIME = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' } as const;
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', ...TIME });
const dayOfYear = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric', ...TIME });

const written = (format: Intl.DateTimeFormat, at: string): string => (Number.isFinite(Date.parse(at)) ? format.format(new Date(at)) : DASH);

/** 21 Nov 14:03:09 in the reader's time zone, with the year when it is not the present one. */
export function shortTime(at: string, nowMs: number = Date.now()): string {
  const isThisYear = new Date(at).getFullYear() === new Date(nowMs).getFullYear();
  return written(isThisYear ? day : dayOfYear, at).replace(',', '');
}
/** 21 Nov 2026, 14:03:09 UTC+1 in the reader's time zone */
export const dateAndTime = (at: string): string => (Number.isFinite(Date.parse(at)) ? `${written(dayOfYear, at)} ${zoneAt(at)}` : DASH);

/** UTC, UTC+1, UTC+5:30: the reader's zone at that time. */
export function zoneAt(at: string | number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  if (!Number.isFinite(minutes) || minutes === 0) return 'UTC';
  const size = Math.abs(minutes);
  const rest = size % 60 === 0 ? '' : `:${String(size % 60).padStart(2, '0')}`;
  return `UTC${minutes < 0 ? '-' : '+'}${Math.floor(size / 60)}${rest}`;
}
