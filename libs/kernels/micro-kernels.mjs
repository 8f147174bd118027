/**
 * Writes the inner loops of the matrix products as AssemblyScript: tiles of up to 5 rows × 8 columns whose sums stay in
 * registers, one k at a time. Which form is fast is decided by V8's register allocation. In GFLOPS on one core (Node 20, x86-64):
 * 5 × 8 43 where nothing but its addresses is alive around the loop, else 23; 4 × 8 35–39 also then; 6 × 8 29, unrolled twice 41 or 28;
 * 4 × 12 and 3 × 16 32; 4 × 8 unrolled 29. A max(0, ·) at the end costs 5 × 8 half of its speed, so relu is a pass of its own. What differs between uses
 * is a function of its own here, not a parameter. Unrolled with a way out of the loop behind each k, on another machine whose registers alone reach 48:
 * 4 × 8 45 by two or four k where it has 41 by one, 5 × 8 37 and 29, 6 × 8 33.
 *
 * A tile adds up in the order of k, one multiplication and one addition at a time, so the bits of an element depend on its row of
 * A and its column of B alone, not on where in the matrix the tile lies. `relaxed` uses fused multiply-add where the machine has it.
 *
 * rowsN…: row r of A begins at table[r] + offset. windowsN: the same in `runs` runs of `run` floats, `jump` bytes apart; neither is 0.
 * tileN…: A is packed, N floats for every k. All: a panel of packed B (8 floats of bias, then 8 floats for every k); C is written
 * at c with rows `ldc` bytes apart. …Bias starts from the bias, …Add from what C holds. listedN: see sparse.ts.
 */
const TILE_ROWS = 5;
/** With the runs of a window alive around the loop. */
const WINDOW_ROWS = 4;
/** The k of a window that are taken at a time. */
const UNROLLED = 4;

/** 16 and 8 columns of a product with lists: with 24 or 32 V8 keeps sums in memory, since it loads all of a row of B before it multiplies. */
const LISTED_VECTORS = [4, 2];

const range = (count) => Array.from({ length: count }, (_, i) => i);
const lines = (items, write) => items.map(write).join('\n');

function beginBias(rows) {
  return `  const low = v128.load(b), high = v128.load(b, 16);
  b += 32;
${lines(rows, (r) => `  let c${r}0 = low, c${r}1 = high;`)}`;
}

function beginAdd(rows) {
  return `  let from = c;
  b += 32;
${lines(rows, (r) => `  let c${r}0 = v128.load(from), c${r}1 = v128.load(from, 16);${r + 1 < rows.length ? ' from += ldc;' : ''}`)}`;
}

function end(rows) {
  return lines(rows, (r) => `  v128.store(c, ${`c${r}0`}); v128.store(c, ${`c${r}1`}, 16);${r + 1 < rows.length ? ' c += ldc;' : ''}`);
}

const multiplyAdd = (relaxed, sum, a, b) =>
  relaxed ? `f32x4.relaxed_madd(${a}, ${b}, ${sum})` : `f32x4.add(${sum}, f32x4.mul(${a}, ${b}))`;

/** One k: `address(r)` says where the element of row r lies, and `at` how many k behind what b names. */
function one(rows, relaxed, address, at = 0) {
  return `{ const b0 = v128.load(b, ${32 * at}), b1 = v128.load(b, ${32 * at + 16});
${lines(rows, (r) => `      { const x = v128.load_splat<f32>(${address(r)}); c${r}0 = ${multiplyAdd(relaxed, `c${r}0`, 'x', 'b0')}; c${r}1 = ${multiplyAdd(relaxed, `c${r}1`, 'x', 'b1')}; }`)}
    }`;
}

const STARTS = {
  Bias: (rows) => [beginBias(rows), end(rows)],
  Add: (rows) => [beginAdd(rows), end(rows)],
};

function rowsKernel(count, relaxed, start) {
  const rows = range(count);
  const [begin, finish] = STARTS[start](rows);
  return `export function rows${count}${start}(table: usize, offset: usize, k: u32, b: usize, c: usize, ldc: usize): void {
${lines(rows, (r) => `  let a${r}: usize = load<u32>(table, ${4 * r}) + offset;`)}
${begin}
  while (k) {
    ${one(rows, relaxed, (r) => `a${r}`)}
    ${rows.map((r) => `a${r} += 4;`).join(' ')} b += 32; k--;
  }
${finish}
}
`;
}

function tileKernel(count, relaxed, start) {
  const rows = range(count);
  const [begin, finish] = STARTS[start](rows);
  return `export function tile${count}${start}(a: usize, k: u32, b: usize, c: usize, ldc: usize): void {
${begin}
  while (k) {
    ${one(rows, relaxed, (r) => `a, ${4 * r}`)}
    a += ${4 * count}; b += 32; k--;
  }
${finish}
}
`;
}

/** Several k of a window, each followed by a way out of the loop: without one V8 would put all loads before the first product, and keep sums in memory. */
function unrolled(rows, relaxed) {
  const steps = range(UNROLLED).map(
    (i) => `${one(rows, relaxed, (r) => `a${r}, ${4 * i}`, i)}
      if (left == ${i + 1}) break;`,
  );
  return `while (true) {
      ${steps.join('\n      ')}
      ${rows.map((r) => `a${r} += ${4 * UNROLLED};`).join(' ')} b += ${32 * UNROLLED}; left -= ${UNROLLED};
    }`;
}

function windowsKernel(count, relaxed) {
  const rows = range(count);
  const [begin, finish] = STARTS.Bias(rows);
  return `export function windows${count}(table: usize, runs: u32, run: u32, jump: usize, b: usize, c: usize, ldc: usize): void {
${lines(rows, (r) => `  let a${r}: usize = load<u32>(table, ${4 * r});`)}
${begin}
  while (true) {
    let left = run;
    ${unrolled(rows, relaxed)}
    if (!--runs) break;
    b += <usize>left << 5;
    const step = (<usize>left << 2) + jump;
    ${rows.map((r) => `a${r} += step;`).join(' ')}
  }
${finish}
}
`;
}

/**
 * Sums of `vectors` × 4 columns over one list: begins from what lies at `begin`, rows of B are named by the entries. Two entries at a time: four
 * sums, two rows of B and two elements are what V8 keeps in registers (three entries take twice as long).
 */
function listedKernel(vectors, relaxed) {
  const columns = range(vectors);
  const entry = (at) => `    {
      const b = base + <usize>load<u32>(entries, ${at});
      const x = v128.load_splat<f32>(entries, ${at + 4});
${lines(columns, (j) => `      c${j} = ${multiplyAdd(relaxed, `c${j}`, 'x', `v128.load(b, ${16 * j})`)};`)}
    }`;
  return `export function listed${vectors}(entries: usize, end: usize, base: usize, begin: usize, c: usize): void {
${lines(columns, (j) => `  let c${j} = v128.load(begin, ${16 * j});`)}
  while (entries + 8 < end) {
${entry(0)}
${entry(8)}
    entries += 16;
  }
  if (entries < end) {
${entry(0)}
  }
${lines(columns, (j) => `  v128.store(c, c${j}, ${16 * j});`)}
}
`;
}

/** The source of assembly/training/micro-kernels.ts, which exists only while the module is compiled. */
export function microKernels(relaxed) {
  const counts = (most) => range(most).map((i) => i + 1);
  const plain = counts(TILE_ROWS).flatMap((count) => [
    ...['Bias', 'Add'].map((start) => rowsKernel(count, relaxed, start)),
    ...['Bias', 'Add'].map((start) => tileKernel(count, relaxed, start)),
  ]);
  const windows = counts(WINDOW_ROWS).map((count) => windowsKernel(count, relaxed));
  return [...plain, ...windows, ...LISTED_VECTORS.map((vectors) => listedKernel(vectors, relaxed))].join('\n');
}
