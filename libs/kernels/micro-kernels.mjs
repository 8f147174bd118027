/**
 * Writes the inner loops of the matrix products as AssemblyScript: tiles of up to 4 rows × 8 columns whose sums stay in
 * registers, one k at a time. Measured in GFLOPS on one core (Node 20, x86-64): 4 × 8 39, unrolled twice 29; 6 × 8 28, unrolled 41 alone but 28
 * with anything else alive around the loop; 4 × 12 32. V8's register allocation decides, and this form is the one that it always gets right.
 *
 * A tile adds up in the order of k, one multiplication and one addition at a time, so the bits of an element depend on its row of
 * A and its column of B alone, not on where in the matrix the tile lies. `relaxed` uses fused multiply-add where the machine has it.
 *
 * rowsN: row r of A begins at table[r] + offset and is read along its length: `runs` runs of `run` floats, `jump` bytes apart.
 * columnsN: element (r, k) of A is at table[k] + offset + 4·r: rows of the transposed matrix.
 * Both: a panel of packed B (8 floats of bias, then 8 floats for every k); C is written at c with rows `ldc` bytes apart.
 * `begin` 0 starts from the bias, 1 from what C holds. `relu` 1 ends with max(0, ·).
 */
const TILE_ROWS = 4;

const range = (count) => Array.from({ length: count }, (_, i) => i);
const lines = (items, write) => items.map(write).join('\n');

function begin(rows) {
  return `${lines(rows, (r) => `  let c${r}0: v128, c${r}1: v128;`)}
  if (begin) {
    let from = c;
${lines(rows, (r) => `    c${r}0 = v128.load(from); c${r}1 = v128.load(from, 16);${r + 1 < rows.length ? ' from += ldc;' : ''}`)}
  } else {
    const low = v128.load(b), high = v128.load(b, 16);
${lines(rows, (r) => `    c${r}0 = low; c${r}1 = high;`)}
  }
  b += 32;`;
}

function end(rows) {
  return `  if (relu) {
    const zero = f32x4.splat(0);
${lines(rows, (r) => `    c${r}0 = f32x4.max(c${r}0, zero); c${r}1 = f32x4.max(c${r}1, zero);`)}
  }
${lines(rows, (r) => `  v128.store(c, c${r}0); v128.store(c, c${r}1, 16);${r + 1 < rows.length ? ' c += ldc;' : ''}`)}`;
}

const multiplyAdd = (relaxed, sum, a, b) =>
  relaxed ? `f32x4.relaxed_madd(${a}, ${b}, ${sum})` : `f32x4.add(${sum}, f32x4.mul(${a}, ${b}))`;

/** One k: `address(r)` says where the element of row r lies. */
function one(rows, relaxed, address) {
  return `{ const b0 = v128.load(b), b1 = v128.load(b, 16);
${lines(rows, (r) => `      { const a = v128.load_splat<f32>(${address(r)}); c${r}0 = ${multiplyAdd(relaxed, `c${r}0`, 'a', 'b0')}; c${r}1 = ${multiplyAdd(relaxed, `c${r}1`, 'a', 'b1')}; }`)}
    }`;
}

function rowsKernel(count, relaxed) {
  const rows = range(count);
  return `export function rows${count}(table: usize, offset: usize, runs: u32, run: u32, jump: usize, b: usize, c: usize, ldc: usize, begin: u32, relu: u32): void {
${lines(rows, (r) => `  let a${r}: usize = load<u32>(table, ${4 * r}) + offset;`)}
${begin(rows)}
  while (runs) {
    let left = run;
    while (left) {
      ${one(rows, relaxed, (r) => `a${r}`)}
      ${rows.map((r) => `a${r} += 4;`).join(' ')} b += 32; left--;
    }
    ${rows.map((r) => `a${r} += jump;`).join(' ')}
    runs--;
  }
${end(rows)}
}
`;
}

function columnsKernel(count, relaxed) {
  const rows = range(count);
  return `export function columns${count}(table: usize, k: u32, offset: usize, b: usize, c: usize, ldc: usize, begin: u32, relu: u32): void {
${begin(rows)}
  while (k) {
    const a0 = <usize>load<u32>(table) + offset;
    ${one(rows, relaxed, (r) => `a0, ${4 * r}`)}
    table += 4; b += 32; k--;
  }
${end(rows)}
}
`;
}

/** The source of assembly/training/micro-kernels.ts, which exists only while the module is compiled. */
export function microKernels(relaxed) {
  const counts = range(TILE_ROWS).map((i) => i + 1);
  return counts.map((count) => rowsKernel(count, relaxed) + columnsKernel(count, relaxed)).join('\n');
}
