import { describe, expect, it } from 'vitest';
import {
  accuracy,
  age,
  bytes,
  compact,
  count,
  dateAndTime,
  duration,
  loss,
  percent,
  ranges,
  rate,
  share,
  shortTime,
  value,
  zoneAt,
} from './format.js';

const plain = (text: string): string => text.replaceAll('\u202f', ' ');

describe('numbers', () => {
  it('shows a dash for what is missing or not finite', () => {
    for (const format of [count, compact, loss, accuracy, percent, share, rate, duration, bytes]) {
      for (const missing of [null, undefined, Number.NaN, Number.POSITIVE_INFINITY]) expect(format(missing)).toBe('–');
    }
  });
  it('writes values of data without a comma in a year', () => {
    expect([1956, 436_804.2, 0.031_421, 1e-7, 2.5e12, 12_345].map(value)).toEqual([
      '1956',
      '436,804',
      '0.03142',
      '1.00e-7',
      '2.50e+12',
      '12,345',
    ]);
  });
  it('keeps three significant digits of a loss', () => {
    expect([2.302585, 0.0421337, 0.5, 0, 0.00012345, 1.23e-7, 150.26, 3.2e9].map(loss)).toEqual([
      '2.303',
      '0.0421',
      '0.500',
      '0',
      '0.000123',
      '1.2e-7',
      '150.3',
      '3.2e+9',
    ]);
  });
  it('does not round up to all or to perfect', () => {
    expect(plain(percent(0.9999))).toBe('99 %');
    expect([0.29, 0.57, 0.58, 1.13 / 2].map((part) => plain(percent(part)))).toEqual(['29 %', '57 %', '58 %', '56 %']);
    expect(plain(percent(1))).toBe('100 %');
    expect(plain(percent(1.7))).toBe('100 %');
    expect(plain(accuracy(0.97842))).toBe('97.84 %');
    expect([0, 0.5, 0.9996, 1].map((part) => plain(share(part)))).toEqual(['0.0 %', '50.0 %', '99.9 %', '100.0 %']);
  });
  it('groups and shortens', () => {
    expect(count(182_272.4)).toBe('182,272');
    expect(compact(235_146)).toBe('235K');
    expect([3.21, 38_412.6].map(rate)).toEqual(['3.2', '38,413']);
    expect([0, 999, 1500, 145_300_000, 2e12].map(bytes).map(plain)).toEqual(['0 B', '999 B', '1.5 kB', '145 MB', '2.0 TB']);
  });
  it('writes replica sets as ranges', () => {
    expect([[], [3], [0, 1], [0, 1, 2, 5], [7, 5, 6, 1]].map(ranges)).toEqual(['–', '3', '0, 1', '0–2, 5', '1, 5–7']);
  });
});

describe('times', () => {
  it('shows two units of a duration', () => {
    expect([0.42, 8.4, 59.7, 80, 3600, 7505, 273_600].map(duration).map(plain)).toEqual([
      '0.4 s',
      '8 s',
      '1 min',
      '1 min 20 s',
      '1 h',
      '2 h 5 min',
      '3 d 4 h',
    ]);
    expect(duration(-1)).toBe('–');
  });
  it('has the day with every time, the year when it is another one, and the zone of the reader', () => {
    const at = new Date(2026, 10, 21, 14, 3, 9).toISOString();
    const now = Date.parse(at) + 86_400_000;
    expect([shortTime(at, now), shortTime(at, now + 400 * 86_400_000)]).toEqual(['21 Nov 14:03:09', '21 Nov 2026 14:03:09']);
    expect(dateAndTime(at)).toBe(`21 Nov 2026, 14:03:09 ${zoneAt(at)}`);
    const zoned = (minutes: number) => {
      const original = Date.prototype.getTimezoneOffset;
      Date.prototype.getTimezoneOffset = () => -minutes;
      try {
        return zoneAt(at);
      } finally {
        Date.prototype.getTimezoneOffset = original;
      }
    };
    expect([0, 60, -300, 330].map(zoned)).toEqual(['UTC', 'UTC+1', 'UTC-5', 'UTC+5:30']);
    expect(shortTime('nonsense')).toBe('–');
  });
  it('shows one unit of an age and forgives clocks that differ', () => {
    const now = Date.parse('2026-03-01T12:00:00Z');
    const ages = [
      '2026-03-01T12:00:09Z',
      '2026-03-01T11:59:48Z',
      '2026-03-01T11:57:00Z',
      '2026-03-01T02:00:00Z',
      '2026-02-01T00:00:00Z',
    ].map((at) => age(at, now));
    expect(ages.map(plain)).toEqual(['now', '12 s', '3 min', '10 h', '28 d']);
    expect([age(null, now), age('nonsense', now), dateAndTime('nonsense')]).toEqual(['–', '–', '–']);
  });
});
