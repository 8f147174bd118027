/** Numbers, durations and tables as people read them. */

/** 950, 12.3k, 4.57M */
export function count(value: number): string {
  if (!Number.isFinite(value)) return '–';
  for (const [size, unit] of [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e4, 'k'],
  ] as const) {
    const scaled = value / (unit === 'k' ? 1e3 : size);
    if (value >= size) return `${scaled.toFixed(scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)}${unit}`;
  }
  return value.toFixed(Number.isInteger(value) || value >= 100 ? 0 : 1);
}

/** 0:08, 12:30, 3:04:05; more than 99 hours in days. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '–';
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (hours > 99) return `${Math.floor(hours / 24)}d ${hours % 24}h`;
  const two = (n: number): string => String(n).padStart(2, '0');
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** `3 min ago` */
export function ago(iso: string, nowMs: number): string {
  const seconds = Math.max(0, Math.round((nowMs - Date.parse(iso)) / 1000));
  if (!Number.isFinite(seconds)) return '–';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** `2026-11-22 12:38:22`, in the zone of this machine. */
export function localTime(iso: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return '–';
  return `${localDate(time)} ${time.toTimeString().slice(0, 8)}`;
}

/** The same without the date when it is today's. */
export function shortTime(iso: string, nowMs: number): string {
  const time = new Date(iso);
  return localDate(time) === localDate(new Date(nowMs)) ? time.toTimeString().slice(0, 8) : localTime(iso);
}

function localDate(time: Date): string {
  const two = (n: number): string => String(n).padStart(2, '0');
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** `1 worker`, `2 workers`; large numbers are short. */
export function plural(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
}

/** A share of 1 as `96.25 %`. */
export function percent(share: number | null | undefined, digits = 2): string {
  return share === null || share === undefined || !Number.isFinite(share) ? '–' : `${(share * 100).toFixed(digits)} %`;
}

export function bytes(value: number): string {
  for (const [size, unit] of [
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB'],
  ] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

export function decimals(value: number | null | undefined, digits: number): string {
  return value === null || value === undefined || !Number.isFinite(value) ? '–' : value.toFixed(digits);
}

const FLOAT32_DIGITS = 9;

/** The shortest decimal that is this float32: 3.3, where JavaScript prints 3.299999952316284. */
export function float32Text(value: number): string {
  for (let digits = 1; digits <= FLOAT32_DIGITS; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(value);
}

/** Columns a character takes: East Asian wide ones and emoji take two. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const COMBINING = /\p{Mn}|\p{Me}/u;

export function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += COMBINING.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** Cuts to `width` columns, with an ellipsis where something was cut. */
export function fit(text: string, width: number, ellipsis = '…'): string {
  if (widthOf(text) <= width) return text;
  if (width <= 0) return '';
  let kept = '';
  let used = 0;
  for (const character of text) {
    const own = widthOf(character);
    if (used + own > width - ellipsis.length) break;
    kept += character;
    used += own;
  }
  return kept + ellipsis.slice(0, width - used);
}

export interface Column {
  readonly title: string;
  readonly align?: 'right';
  /** Narrow terminals drop columns with the highest number first; 0 stays. */
  readonly drop?: number;
  /** Cells may be cut down to this width before columns are dropped. */
  readonly least?: number;
}

/**
 * Lines of a table that fits into `width` columns. Cells are plain text; `paint` may colour a cell after it was padded.
 */
export function table(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  options: {
    readonly width: number;
    readonly paint?: (text: string, row: number, column: number) => string;
    readonly paintTitle?: (text: string) => string;
  },
): string[] {
  const { paint = (text: string) => text, paintTitle = (text: string) => text } = options;
  const natural = columns.map((column, c) => Math.max(widthOf(column.title), ...rows.map((row) => widthOf(row[c] ?? ''))));
  let shown = columns.map((_, c) => c);
  const least = (c: number): number => Math.min(natural[c]!, columns[c]!.least ?? natural[c]!);
  const total = (of: (c: number) => number): number => shown.reduce((sum, c) => sum + of(c), 0) + 2 * (shown.length - 1);
  while (total(least) > options.width) {
    const victim = [...shown].filter((c) => columns[c]!.drop).sort((a, b) => columns[b]!.drop! - columns[a]!.drop!)[0];
    if (victim === undefined) break;
    shown = shown.filter((c) => c !== victim);
  }
  const widths = new Map(shown.map((c) => [c, natural[c]!]));
  for (const c of shown) {
    const over = total((other) => widths.get(other)!) - options.width;
    if (over > 0) widths.set(c, Math.max(least(c), widths.get(c)! - over));
  }
  const line = (cells: (c: number) => string, painted: (text: string, c: number) => string): string =>
    shown
      .map((c, at) => {
        const text = fit(cells(c), widths.get(c)!);
        const padding = ' '.repeat(widths.get(c)! - widthOf(text));
        if (columns[c]!.align === 'right') return padding + painted(text, c);
        return painted(text, c) + (at === shown.length - 1 ? '' : padding);
      })
      .join('  ')
      .trimEnd();
  return [
    line(
      (c) => columns[c]!.title,
      (text) => paintTitle(text),
    ),
    ...rows.map((row, r) =>
      line(
        (c) => row[c] ?? '',
        (text, c) => paint(text, r, c),
      ),
    ),
  ];
}
