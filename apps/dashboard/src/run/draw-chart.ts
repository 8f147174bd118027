/**
 * uPlot with our colours. It is drawn again when the colours or the room change. A mouse over it moves the cursor of all charts of the page
 * and, dragged, zooms them; what it shows is said by `show`.
 */
import uPlot from 'uplot';
import { count } from '../text/format.js';
import { onThemeChange } from '../components/theme.js';
import { decadesOnly, tickLabel, valueRange, type Span, type ValueScale } from './chart-scale.js';

const HEIGHT_PX = 198;
/** A gap in the rounds is drawn as it is: rows may be merged, but none is left out. */
const X = 0;
const [LINE, , HIGH, LOW] = [1, 2, 3, 4];
/** A label of an epoch needs this much room. */
const EPOCH_LABEL_PX = 68;
/** Above the lines, so that no curve runs through it. */
const EPOCH_LABEL_ROOM_PX = 16;

export interface ChartStyle extends ValueScale {
  /** Where the curve tends to: labels stand at the other end. */
  readonly better?: 'higher' | 'lower' | undefined;
  readonly roundsPerEpoch: number | undefined;
  /** The index of the point under the mouse. */
  readonly onCursor: (index: number | undefined) => void;
  /** What was dragged over, in committed rounds; undefined: all, by a double click. */
  readonly onZoom: (span: Span | undefined) => void;
}

type Column = readonly (number | null)[];
/** Rounds, the line, the means behind it while the line is smoothed, highest, lowest, the line of validations. */
export type ChartData = readonly [x: readonly number[], line: Column, means: Column, high: Column, low: Column, validation: Column];

/** A place that is pointed out: the best round, a round in which the rate was lowered. */
export interface ChartMark {
  /** In committed rounds. */
  readonly place: number;
  readonly kind: 'best' | 'reduced';
  /** On the chart, where there is room. */
  readonly label: string;
  /** For those who do not see the chart. */
  readonly text: string;
}

export interface DrawnChart {
  show(data: ChartData, span: Span, marks: readonly ChartMark[]): void;
  moveCursor(index: number | undefined): void;
  remove(): void;
}

export function drawChart(place: HTMLElement, style: ChartStyle): DrawnChart {
  let data: uPlot.AlignedData = [[], [], [], [], [], []];
  let span: Span = [0, 1];
  let marks: readonly ChartMark[] = [];
  let plot: uPlot;
  const draw = (): void => {
    plot?.destroy();
    plot = new uPlot(
      options(
        place,
        style,
        () => span,
        () => marks,
      ),
      data,
      place,
    );
  };
  draw();
  const stopTheme = onThemeChange(draw);
  const room = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT_PX }));
  room.observe(place);
  return {
    show: (next, nextSpan, nextMarks) => {
      const wasEmpty = data[X].length === 0;
      marks = nextMarks;
      data = next as unknown as uPlot.AlignedData;
      span = nextSpan;
      // An empty chart has no labels, and uPlot keeps them while the range of the axis is the same.
      if (wasEmpty !== (data[X].length === 0)) draw();
      else plot.setData(data);
    },
    moveCursor: (index) => {
      const at = index === undefined ? undefined : plot.data[X][index];
      const left = at === undefined ? -10 : plot.valToPos(at, 'x');
      plot.setCursor({ left, top: left < 0 ? -10 : plot.over.clientHeight / 2 }, false);
    },
    remove: () => {
      room.disconnect();
      stopTheme();
      plot.destroy();
    },
  };
}

function options(place: HTMLElement, style: ChartStyle, span: () => Span, marks: () => readonly ChartMark[]): uPlot.Options {
  const colour = colours(place);
  const font = `11px ${getComputedStyle(place).getPropertyValue('--font').trim()}`;
  const axis = { stroke: colour('--text-2'), font, ticks: { show: false }, grid: { stroke: colour('--grid'), width: 1 } };
  const accent = colour('--accent');
  // On a logarithmic scale all nine lines of a decade would be a thicket.
  const lines = (_plot: uPlot, splits: number[]) => (style.logarithmic ? decadesOnly(splits) : splits);
  // A round that only one of the lines has is no gap of the other.
  const noPoints = { points: { show: false }, spanGaps: true };
  const band = colour('--accent-band');
  return {
    width: place.clientWidth,
    height: HEIGHT_PX,
    legend: { show: false },
    padding: [EPOCH_LABEL_ROOM_PX, 12, 0, 0],
    cursor: cursorOptions(style, accent, colour('--surface')),
    scales: {
      x: { time: false, range: () => [...span()] },
      y: { distr: style.logarithmic ? 3 : 1, range: (_plot, low, high) => valueRange(low, high, style) },
    },
    axes: [
      { ...axis, size: 26, space: 70, grid: { show: false }, incrs: WHOLE_STEPS, values: (_plot, splits) => splits.map(count) },
      {
        ...axis,
        size: 52,
        space: 34,
        filter: lines,
        grid: { ...axis.grid, filter: lines },
        values: (plot, splits) =>
          splits.map((value: number | null) => (value !== null && plot.data[X].length > 0 ? tickLabel(value, style.isShare === true) : '')),
      },
    ],
    series: [
      {},
      { stroke: accent, width: 1.75, ...noPoints },
      { stroke: colour('--accent-faint'), width: 1, ...noPoints },
      { stroke: 'transparent', ...noPoints },
      { stroke: 'transparent', ...noPoints },
      { stroke: colour('--good'), width: 1.75, dash: [5, 3], spanGaps: true, points: { show: true, size: 4 } },
    ],
    bands: [{ series: [HIGH!, LOW!], fill: band }],
    hooks: {
      ...mouseHooks(style),
      drawClear: [(plot) => drawEpochs(plot, style, { line: colour('--line'), text: colour('--text-2'), font })],
      draw: [
        (plot) =>
          drawMarks(plot, marks(), style.better === 'higher', {
            best: colour('--good'),
            reduced: colour('--wait'),
            ground: colour('--surface'),
            font,
          }),
      ],
    },
  };
}

function cursorOptions(style: ChartStyle, stroke: string, fill: string): uPlot.Cursor {
  return {
    y: false,
    drag: { x: true, y: false, setScale: false, dist: 6 },
    // Not on the edges of the band.
    points: { size: (_plot, series) => (series === LINE ? 7 : 0), width: (_plot, series) => (series === LINE ? 2 : 0), stroke, fill },
    bind: { dblclick: () => () => (style.onZoom(undefined), null) },
  };
}

/** Only what the mouse does is told: the cursor is also moved by the other charts and by new data. */
function mouseHooks(style: ChartStyle): uPlot.Hooks.Arrays {
  let isOver = false;
  return {
    ready: [
      ({ over }) => {
        over.addEventListener('mouseenter', () => (isOver = true));
        over.addEventListener('mouseleave', () => (isOver = false));
      },
    ],
    setCursor: [
      ({ cursor }) => {
        if (!isOver) return;
        style.onCursor(cursor.left === undefined || cursor.left < 0 ? undefined : (cursor.idxs?.[LINE!] ?? cursor.idx ?? undefined));
      },
    ],
    setSelect: [
      (plot) => {
        const { left, width } = plot.select;
        if (width <= 0) return;
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        style.onZoom([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
      },
    ],
  };
}

/** The colours of tokens.css as the canvas takes them: the browser has chosen between light and dark. */
function colours(place: HTMLElement): (name: string) => string {
  return (name) => {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    place.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
}

/** 1, 2, 5, 10, 20, 50 …: a round is whole. */
const WHOLE_STEPS = Array.from({ length: 27 }, (_, i) => [1, 2, 5][i % 3]! * 10 ** Math.floor(i / 3));

interface EpochStyle {
  readonly line: string;
  readonly text: string;
  readonly font: string;
}

/** A dotted line where an epoch begins, with its number; of many epochs as many as there is room for. */
function drawEpochs(plot: uPlot, { roundsPerEpoch }: ChartStyle, style: EpochStyle): void {
  const { min, max } = plot.scales['x']!;
  if (!roundsPerEpoch || roundsPerEpoch < 2 || min == null || max == null) return;
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const labelEvery = Math.ceil(EPOCH_LABEL_PX / Math.max(1, plot.valToPos(roundsPerEpoch, 'x') - plot.valToPos(0, 'x')));
  ctx.save();
  ctx.strokeStyle = style.line;
  ctx.fillStyle = style.text;
  ctx.font = style.font.replace(/^[\d.]+/, (px) => String(Number(px) * ratio));
  ctx.textBaseline = 'top';
  ctx.textAlign = 'left';
  ctx.lineWidth = ratio;
  ctx.setLineDash([2 * ratio, 4 * ratio]);
  for (let epoch = Math.max(1, Math.ceil(min / roundsPerEpoch)); epoch * roundsPerEpoch < max; epoch++) {
    if (epoch % labelEvery !== 0) continue;
    const x = Math.round(plot.valToPos(epoch * roundsPerEpoch, 'x', true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (x + EPOCH_LABEL_PX * ratio < bbox.left + bbox.width)
      ctx.fillText(`epoch ${count(epoch + 1)}`, x - 2 * ratio, bbox.top - EPOCH_LABEL_ROOM_PX * ratio);
  }
  ctx.restore();
}

interface MarkStyle {
  readonly best: string;
  readonly reduced: string;
  readonly ground: string;
  readonly font: string;
}

/** A line with its label at an end of the plot, on the side that has room; a label that would stand on another one is left out. */
function drawMarks(plot: uPlot, marks: readonly ChartMark[], atFoot: boolean, style: MarkStyle): void {
  const { min, max } = plot.scales['x']!;
  if (min == null || max == null || marks.length === 0) return;
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const foot = bbox.top + bbox.height;
  const baseline = atFoot ? foot - 3 * ratio : bbox.top + 14 * ratio;
  ctx.save();
  ctx.font = style.font.replace(/^[\d.]+/, (px) => String(Number(px) * ratio));
  ctx.textBaseline = 'bottom';
  ctx.textAlign = 'left';
  ctx.lineWidth = ratio;
  let free = Number.NEGATIVE_INFINITY;
  for (const { place, kind, label } of marks.toSorted((a, b) => a.place - b.place)) {
    if (place < min || place > max) continue;
    const x = Math.round(plot.valToPos(place, 'x', true));
    ctx.strokeStyle = style[kind];
    ctx.setLineDash(kind === 'best' ? [] : [3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, foot);
    ctx.stroke();
    const width = ctx.measureText(label).width;
    const fitsRight = x + width + 6 * ratio < bbox.left + bbox.width;
    const left = fitsRight ? x + 4 * ratio : x - width - 4 * ratio;
    if (left < free) continue;
    free = left + width + 4 * ratio;
    ctx.fillStyle = style.ground;
    ctx.fillRect(left - ratio, baseline - 13 * ratio, width + 2 * ratio, 14 * ratio);
    ctx.fillStyle = style[kind];
    ctx.fillText(label, left, baseline);
  }
  ctx.restore();
}
