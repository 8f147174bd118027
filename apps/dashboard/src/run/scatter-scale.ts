/** One scale for both axes of a scatter, with round numbers on it. */

export interface ScatterScale {
  readonly from: number;
  readonly to: number;
  /** Round numbers between them. */
  readonly ticks: readonly number[];
  /** Where a number lies: 0 at `from`, 1 at `to`. */
  share(at: number): number;
}

const STEPS = [1, 2, 5, 10];
const TICKS_MOST = 7;
/** Share of the range that is added at each end, so that no point lies on the edge. */
const MARGIN = 0.03;

/** @returns undefined without a point */
export function scatterScale(points: readonly (readonly [number, number])[]): ScatterScale | undefined {
  if (points.length === 0) return undefined;
  const all = points.flat();
  const [least, most] = [Math.min(...all), Math.max(...all)];
  // Points that are all one have room around them.
  const room = most > least ? (most - least) * MARGIN : Math.max(1, Math.abs(most)) / 2;
  const [from, to] = [least - room, most + room];
  return { from, to, ticks: ticksOf(from, to), share: (at) => (at - from) / (to - from) };
}

function ticksOf(from: number, to: number): number[] {
  const rough = (to - from) / TICKS_MOST;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((each) => each * power >= rough * (1 - 1e-9))!;
  const first = Math.ceil(from / step);
  const last = Math.floor(to / step);
  // Twelve digits: 3 * 0.1 is 0.3.
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
