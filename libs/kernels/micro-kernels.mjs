/**
 * Writes the inner loops of the matrix products as AssemblyScript: tiles of up to 4 rows × 8 columns whose sums stay in
 * registers, eight k in a turn of the loop. Which form is fast is decided by V8's register allocation. In GFLOPS on one core (Node 20, an EPYC of AMD
 * whose registers alone reach 48): 4 × 8 46 unrolled by eight, 45 by four or two, 40 not unrolled; 5 × 8 42 not unrolled, 37 by two, 29 by four; 6 × 8 33.
 * A max(0, ·) at the end is a pass of its own. What differs between uses is a function of its own here, not a parameter.
 *
 * A tile adds up in the order of k, one multiplication and one addition at a time, so the bits of an element depend on its row of
 * A and its column of B alone, not on where in the matrix the tile lies. `relaxed` uses fused multiply-add where the machine has it.
 *
 * rowsN…: row r of A begins at table[r] + offset. windowsN: the same in `runs` runs of `run` floats, `jump` bytes apart; neither is 0.
 * tileN…: A is packed, N floats for every k. All: a panel of packed B (8 floats of bias, then 8 floats for every k); C is written
 * at c with rows `ldc` bytes apart. …Bias starts from the bias, …Add from what C holds. listedN: see sparse.ts.
 */
const TILE_ROWS = 4;
/** The k that a whole tile takes in a turn of its loop. */
const UNROLLED = 8;

/** 32, 16 and 8 columns of a product with lists. */
const LISTED_VECTORS = [8, 4, 2];

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

/**
 * `left` k, several in a turn, each followed by a way out of the loop: without one V8 would put all loads before the first product, and keep sums in
 * memory. `next` moves the addresses of A on by that many k.
 */
function unrolled(rows, relaxed, left, address, next) {
  const turn = rows.length === TILE_ROWS ? UNROLLED : 1;
  const steps = range(turn).map(
    (i) => `${one(rows, relaxed, (r) => address(r, i), i)}
    if (${left} == ${i + 1}) break;`,
  );
  return `while (${left}) {
    ${steps.join('\n    ')}
    ${next(turn)} b += ${32 * turn}; ${left} -= ${turn};
  }`;
}

const rowAddress = (r, i) => `a${r}, ${4 * i}`;
const nextInRows = (rows) => (turn) => rows.map((r) => `a${r} += ${4 * turn};`).join(' ');

function rowsKernel(count, relaxed, start) {
  const rows = range(count);
  const [begin, finish] = STARTS[start](rows);
  return `export function rows${count}${start}(table: usize, offset: usize, k: u32, b: usize, c: usize, ldc: usize): void {
${lines(rows, (r) => `  let a${r}: usize = load<u32>(table, ${4 * r}) + offset;`)}
${begin}
  ${unrolled(rows, relaxed, 'k', rowAddress, nextInRows(rows))}
${finish}
}
`;
}

function tileKernel(count, relaxed, start) {
  const rows = range(count);
  const [begin, finish] = STARTS[start](rows);
  return `export function tile${count}${start}(a: usize, k: u32, b: usize, c: usize, ldc: usize): void {
${begin}
  ${unrolled(
    rows,
    relaxed,
    'k',
    (r, i) => `a, ${4 * (count * i + r)}`,
    (turn) => `a += ${4 * count * turn};`,
  )}
${finish}
}
`;
}

function windowsKernel(count, relaxed) {
  const rows = range(count);
  const [begin, finish] = STARTS.Bias(rows);
  return `export function windows${count}(table: usize, runs: u32, run: u32, jump: usize, b: usize, c: usize, ldc: usize): void {
${lines(rows, (r) => `  let a${r}: usize = load<u32>(table, ${4 * r});`)}
${begin}
  while (true) {
    let left = run;
    ${unrolled(rows, relaxed, 'left', rowAddress, nextInRows(rows))}
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
 * One entry of a list, inside of a loop: its element times the row of B that it names. More than four vectors are two halves, with a way out
 * between them that is never taken: V8 would load all of the row before the first product.
 */
function listedEntry(vectors, relaxed) {
  const part = (from, to) =>
    lines(range(to).slice(from), (j) => `        c${j} = ${multiplyAdd(relaxed, `c${j}`, 'x', `v128.load(b, ${16 * j})`)};`);
  const rest = vectors > 4 ? `        if (end == NEVER) break;\n${part(4, vectors)}` : '';
  return `const b = base + <usize>load<u32>(entries), x = v128.load_splat<f32>(entries, 4);
${part(0, Math.min(vectors, 4))}
${rest}`;
}

/** Sums of `vectors` × 4 columns over one list: begins from what lies at `begin`, rows of B are named by the entries. Two entries in a turn of the loop gain nothing. */
function listedKernel(vectors, relaxed) {
  const columns = range(vectors);
  return `export function listed${vectors}(entries: usize, end: usize, base: usize, begin: usize, c: usize): void {
${lines(columns, (j) => `  let c${j} = v128.load(begin, ${16 * j});`)}
  while (entries < end) {
    ${listedEntry(vectors, relaxed)}
    entries += 8;
  }
${lines(columns, (j) => `  v128.store(c, c${j}, ${16 * j});`)}
}
`;
}

/** Sums of `vectors` × 4 columns over several lists, one behind the other: each has its first entry, its end and what its offsets count from in `table`. */
function gatheredKernel(vectors, relaxed) {
  const columns = range(vectors);
  return `export function gathered${vectors}(table: usize, runs: u32, c: usize): void {
${lines(columns, (j) => `  let c${j} = f32x4.splat(0);`)}
  while (runs) {
    let entries: usize = load<u32>(table);
    const end: usize = load<u32>(table, 4);
    const base: usize = load<u32>(table, 8);
    while (entries < end) {
        ${listedEntry(vectors, relaxed)}
        entries += 8;
    }
    table += 12;
    runs--;
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
  const windows = counts(TILE_ROWS).map((count) => windowsKernel(count, relaxed));
  return [
    'const NEVER: usize = 1;',
    ...plain,
    ...windows,
    ...LISTED_VECTORS.map((vectors) => listedKernel(vectors, relaxed)),
    ...LISTED_VECTORS.map((vectors) => gatheredKernel(vectors, relaxed)),
  ].join('\n');
}
