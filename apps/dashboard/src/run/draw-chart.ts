/** uPlot with our colours. It is drawn again when the colours or the room change. */
import uPlot from 'uplot';
import { compact, count } from '../text/format.js';

const HEIGHT_PX = 190;
/** A gap in the rounds is drawn as it is: rows may be merged, but none is left out. */
const X = 0;
const [MEAN, HIGH, LOW] = [1, 2, 3];

export interface ChartStyle {
  readonly format: (value: number) => string;
  readonly lastRound: number;
  readonly roundsPerEpoch: number | undefined;
  readonly fromZero: boolean;
  readonly ceiling: number | undefined;
  /** Needs values above zero. */
  readonly logarithmic: boolean;
  /** The index of the point under the cursor. */
  readonly onCursor: (index: number | undefined) => void;
}

export interface DrawnChart {
  show(data: uPlot.AlignedData): void;
  moveCursor(index: number | undefined): void;
  remove(): void;
}

export function drawChart(place: HTMLElement, style: ChartStyle): DrawnChart {
  let data: uPlot.AlignedData = [[], [], [], []];
  let plot: uPlot;
  const draw = (): void => {
    plot?.destroy();
    plot = new uPlot(options(place, style), data, place);
  };
  draw();
  const colours = window.matchMedia('(prefers-color-scheme: dark)');
  colours.addEventListener('change', draw);
  const room = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT_PX }));
  room.observe(place);
  return {
    show: (next) => {
      const wasEmpty = data[X].length === 0;
      data = next;
      // An empty chart has no labels, and uPlot keeps them while the range of the axis is the same.
      if (wasEmpty !== (data[X].length === 0)) draw();
      else plot.setData(data);
    },
    moveCursor: (index) => {
      const left = index === undefined ? -10 : plot.valToPos(plot.data[X][index]!, 'x');
      plot.setCursor({ left, top: index === undefined ? -10 : plot.over.clientHeight / 2 }, false);
    },
    remove: () => {
      room.disconnect();
      colours.removeEventListener('change', draw);
      plot.destroy();
    },
  };
}

function options(place: HTMLElement, style: ChartStyle): uPlot.Options {
  const colour = (name: string): string => getComputedStyle(place).getPropertyValue(name).trim();
  const font = `11px ${colour('--font')}`;
  const axis = { stroke: colour('--text-2'), font, ticks: { show: false }, grid: { stroke: colour('--grid'), width: 1 } };
  const accent = colour('--accent');
  // On a logarithmic scale all nine lines of a decade would be a thicket.
  const roundOnly = (_plot: uPlot, splits: number[]) =>
    style.logarithmic ? splits.map((value) => (isRound(value) ? value : null)) : splits;
  const quiet = { stroke: 'transparent', points: { show: false } };
  return {
    width: place.clientWidth,
    height: HEIGHT_PX,
    legend: { show: false },
    padding: [8, 12, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7, width: 2, stroke: accent, fill: colour('--surface') } },
    scales: {
      x: { time: false, range: (_plot, _min, max) => [0, Math.max(style.lastRound, max ?? 0, 1)] },
      y: { distr: style.logarithmic ? 3 : 1, range: (_plot, low, high) => valueRange(low, high, style) },
    },
    axes: [
      { ...axis, size: 26, space: 70, grid: { show: false }, incrs: WHOLE_STEPS, values: (_plot, splits) => splits.map(count) },
      {
        ...axis,
        size: 46,
        space: 34,
        filter: roundOnly,
        grid: { ...axis.grid, filter: roundOnly },
        values: (plot, splits) =>
          splits.map((value: number | null) => (value !== null && plot.data[X].length > 0 ? tick(value, style) : '')),
      },
    ],
    series: [{}, { stroke: accent, width: 1.75, points: { show: false } }, quiet, quiet],
    bands: [{ series: [HIGH!, LOW!], fill: colour('--accent-band') }],
    hooks: {
      setCursor: [
        ({ cursor }) =>
          style.onCursor(cursor.left === undefined || cursor.left < 0 ? undefined : (cursor.idxs?.[MEAN!] ?? cursor.idx ?? undefined)),
      ],
      drawClear: [(plot) => drawEpochs(plot, style, colour('--grid'))],
    },
  };
}

/** 1, 2, 5, 10, 20, 50 …: a round is whole. */
const WHOLE_STEPS = Array.from({ length: 27 }, (_, i) => [1, 2, 5][i % 3]! * 10 ** Math.floor(i / 3));

/** 0.1, 1, 10 … */
const isRound = (value: number): boolean => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;

function tick(value: number, { format, ceiling }: ChartStyle): string {
  if (ceiling === 1) return `${Number((value * 100).toFixed(2))}\u202f%`;
  return Math.abs(value) >= 1000
    ? compact(value)
    : value === 0
      ? '0'
      : Math.abs(value) >= 0.01
        ? String(Number(value.toFixed(3)))
        : format(value);
}

/** Some air above and below, but not past what the metric can be. */
function valueRange(low: number | null, high: number | null, { fromZero, ceiling, logarithmic }: ChartStyle): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return logarithmic ? [0.1, 1] : [0, 1];
  if (logarithmic) return [low / 1.2, high * 1.2];
  const air = (high - low || Math.abs(high) || 1) * 0.08;
  const bottom = fromZero || (low >= 0 && low < air * 3) ? 0 : low - air;
  return [bottom, ceiling === undefined ? high + air : Math.min(ceiling, high + air)];
}

function drawEpochs(plot: uPlot, { roundsPerEpoch, lastRound }: ChartStyle, stroke: string): void {
  if (!roundsPerEpoch || roundsPerEpoch < 2) return;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
  for (let round = roundsPerEpoch; round < lastRound; round += roundsPerEpoch) {
    const x = Math.round(plot.valToPos(round, 'x', true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
