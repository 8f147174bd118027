import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RunSummary } from '@paceline/client';
import { printMatrix } from '../show-predictions.js';
import { clean } from './clean.js';
import { ago, bytes, count, decimals, duration, fit, float32Text, table, widthOf } from './format.js';
import { createLiveLine } from './live-line.js';
import { progressLine } from './progress-line.js';
import { createTerminal, type Stream } from './terminal.js';

function recorder(isTTY: boolean, columns = 80): Stream & { text: string } {
  return {
    isTTY,
    columns: () => columns,
    text: '',
    write(more: string) {
      this.text += more;
    },
  };
}

describe('texts of others', () => {
  it.each([
    ['\u001b[31mred\u001b[0m', 'red'],
    ['\u001b]0;new title\u0007name', 'name'],
    ['\u001b]8;;http://evil\u001b\\link\u001b]8;;\u001b\\', 'link'],
    ['a\r\nb\tc', 'a b c'],
    ['\u202Eevil\u202C\u200B', 'evil'],
    ['\u009b2Jx\u0000\u0008', 'x'],
    ['\u001bcreset', 'reset'],
    ['naïve 数 🎉', 'naïve 数 🎉'],
  ])('%j is printed as %j', (text, shown) => expect(clean(text)).toBe(shown));

  it('hold no control character and are bounded, whatever they were', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), fc.integer({ min: 1, max: 200 }), (text, most) => {
        const shown = clean(text, most);
        expect(shown).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}]/u);
        expect(shown.length).toBeLessThanOrEqual(most);
      }),
    );
  });
});

describe('numbers', () => {
  it('are short', () => {
    expect([0, 7, 0.25, 950, 9999, 12_345, 456_789, 1_234_567, 2.5e9].map(count)).toEqual([
      '0',
      '7',
      '0.3',
      '950',
      '9999',
      '12.3k',
      '457k',
      '1.23M',
      '2.50G',
    ]);
    expect([0, 8.4, 750, 11_045, 400_000].map(duration)).toEqual(['0:00', '0:08', '12:30', '3:04:05', '4d 15h']);
    expect([duration(Number.NaN), duration(-1), count(Infinity), decimals(null, 2)]).toEqual(['–', '–', '–', '–']);
    expect([bytes(12), bytes(2048), bytes(300 * 2 ** 20)]).toEqual(['12 B', '2.0 KiB', '300 MiB']);
    expect([3, 200, 7300, 200_000].map((seconds) => ago(new Date(1e12 - seconds * 1000).toISOString(), 1e12))).toEqual([
      '3 s ago',
      '3 min ago',
      '2 h ago',
      '2 d ago',
    ]);
  });

  it('wide characters take two columns, and what is cut fits', () => {
    expect(widthOf('数é🎉')).toBe(5);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.nat(40), (text, width) => {
        expect(widthOf(fit(text, width))).toBeLessThanOrEqual(width);
      }),
    );
  });
});

describe('tables', () => {
  const columns = [
    { title: 'ID' },
    { title: 'NAME', least: 6 },
    { title: 'LOSS', align: 'right', drop: 2 },
    { title: 'SEEN', drop: 1 },
  ] as const;
  const rows = [
    ['1234', 'a long name of a run', '0.12', 'now'],
    ['5', 'short', '12.5', 'yesterday'],
  ];

  it('are aligned', () => {
    expect(table(columns, rows, { width: 80 })).toEqual([
      'ID    NAME                  LOSS  SEEN',
      '1234  a long name of a run  0.12  now',
      '5     short                 12.5  yesterday',
    ]);
  });

  it('cut cells first, then drop columns, when the terminal is narrow', () => {
    expect(table(columns, rows, { width: 34 })).toEqual([
      'ID    NAME         LOSS  SEEN',
      '1234  a long nam…  0.12  now',
      '5     short        12.5  yesterday',
    ]);
    expect(table(columns, rows, { width: 14 })).toEqual(['ID    NAME', '1234  a long …', '5     short']);
  });
});

describe('the confusion matrix', () => {
  const shown = (columns: number, isTTY = true): string[] => {
    const [stdout, stderr] = [recorder(isTTY, columns), recorder(isTTY, columns)];
    const labels = ['setosa', 'versicolor'];
    printMatrix(
      labels,
      [
        [10, 0],
        [2, 8],
      ],
      createTerminal({ json: false, debug: false }, { NO_COLOR: '1' }, stdout, stderr),
    );
    return [stdout.text, stderr.text];
  };

  it('is whole, or said to be in --json where the terminal is too narrow for it', () => {
    const whole = '\nIS          setosa  versicolor\nsetosa          10           0\nversicolor       2           8\n';
    expect(shown(30)).toEqual([whole, '']);
    expect(shown(10, false)).toEqual([whole, '']);
    expect(shown(29)).toEqual(['', 'The confusion matrix of 2 classes has no room here; --json has it.\n']);
  });
});

describe('the progress line', () => {
  const progress: RunSummary['progress'] = {
    phase: 'training',
    round: 512,
    totalRounds: 1175,
    epoch: 1,
    totalEpochs: 5,
    loss: 0.23151,
    accuracy: 0.9312,
    values: { loss: 0.2315, accuracy: 0.9312 },
    validation: null,
    examplesPerSecond: 12_345,
    etaSeconds: 8,
    workers: 2,
    replicas: 4,
    waitingFor: null,
  };
  const running = { status: 'RUNNING', statusReason: null, progress } as const;

  it('says everything where there is room', () => {
    expect(progressLine(running, { width: 120, unicode: true })).toBe(
      `epoch 2/5 ${'█'.repeat(13)}${'░'.repeat(17)} 43%  round 512/1175  loss 0.2315  acc 93.1 %  12.3k examples/s  ETA 0:08`,
    );
  });

  it('never is wider than the terminal, and keeps epoch and percentage to the last', () => {
    for (let width = 16; width < 140; width++) {
      for (const unicode of [true, false]) {
        const line = progressLine(running, { width, unicode });
        expect(widthOf(line)).toBeLessThanOrEqual(width);
        expect(line).toContain('43%');
        expect(line.startsWith('epoch 2/5')).toBe(true);
      }
    }
    expect(progressLine(running, { width: 60, unicode: false })).toBe(
      `epoch 2/5 ${'#'.repeat(10)}${'-'.repeat(13)} 43%  loss 0.2315  ETA 0:08`,
    );
  });

  it('says what a run waits for, without control characters', () => {
    const waiting = {
      status: 'QUEUED',
      statusReason: 'x',
      progress: { ...progress, totalRounds: 0, waitingFor: 'a worker\u001b[2J with engine wasm' },
    } as const;
    expect(progressLine(waiting, { width: 80, unicode: true })).toBe('queued: a worker with engine wasm');
  });
});

describe('the live line', () => {
  it('is drawn over on a terminal, with lasting lines above', () => {
    const stream = recorder(true);
    let now = 0;
    const live = createLiveLine(stream, () => now);
    live.update('one');
    now = 20;
    live.update('too soon');
    now = 200;
    live.above('an event');
    live.update('two');
    live.finish();
    expect(stream.text).toContain('\u001b[2Kan event\n');
    expect(stream.text.endsWith('\r\u001b[2K\u001b[?25h'), 'the cursor is shown again').toBe(true);
  });

  it('gives the cursor back when the process ends in the middle', () => {
    const stream = recorder(true);
    const others = new Set(process.listeners('exit'));
    createLiveLine(stream, () => 0).update('one');
    const own = process.listeners('exit').filter((listener) => !others.has(listener));
    own[0]!(130);
    expect(stream.text.endsWith('\u001b[?25h')).toBe(true);
    expect(process.listenerCount('exit')).toBe(others.size);
  });

  it('is printed at most once a second, and only when it changed, elsewhere', () => {
    const stream = recorder(false);
    let now = 0;
    const live = createLiveLine(stream, () => now);
    for (const [at, text] of [
      [0, 'a'],
      [500, 'b'],
      [1000, 'c'],
      [2500, 'c'],
      [3600, 'd'],
    ] as const) {
      now = at;
      live.update(text);
    }
    live.above('event');
    live.finish();
    expect(stream.text).toBe('a\nc\nd\nevent\n');
  });
});

describe('the terminal', () => {
  const make = (env: NodeJS.ProcessEnv, isTTY: boolean) =>
    createTerminal({ json: false, debug: false }, env, recorder(isTTY), recorder(isTTY));

  it('colours only where it is wanted', () => {
    expect(make({}, true).style('red', 'x')).toBe('\u001b[31mx\u001b[39m');
    expect(make({}, false).style('red', 'x')).toBe('x');
    expect(make({ NO_COLOR: '1' }, true).style('red', 'x')).toBe('x');
    expect(make({ TERM: 'dumb' }, true).style('red', 'x')).toBe('x');
    expect(make({ FORCE_COLOR: '1' }, false).style('red', 'x')).toBe('\u001b[31mx\u001b[39m');
  });

  it('prints nothing but the document with --json', () => {
    const stdout = recorder(false);
    const terminal = createTerminal({ json: true, debug: false }, {}, stdout, recorder(false));
    terminal.print('for people');
    terminal.document({ a: 1 });
    expect(stdout.text).toBe('{"a":1}\n');
  });
});

describe('a number that is kept as float32', () => {
  it.each([
    [Math.fround(3.3), '3.3'],
    [-0.5, '-0.5'],
    [16_777_216, '16777216'],
    [Math.fround(1e-7), '1e-7'],
    [0.1, '0.1'],
    [Math.PI, '3.141592653589793'],
  ])('%s is %s', (value, text) => expect(float32Text(value)).toBe(text));
});
