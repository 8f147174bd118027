/**
 * The element-wise half of LSTM (Hochreiter & Schmidhuber 1997, with forget gate) and GRU steps (Cho et al. 2014, with the reset
 * gate after the product, as in cuDNN and Keras' default) for a batch, forward and backward. Gates stand in the order of Keras: LSTM i, f, c, o; GRU z, r, h.
 * Units are padded to nothing: a tail of fewer than four goes through a register with zeros.
 */
import { hardSigmoid4, hardSigmoidSlope4, sigmoid4, tanh4 } from './functions';

// @ts-ignore: decorator
@inline
function get(at: usize, count: u32): v128 {
  return count == 4 ? v128.load(at) : getFew(at, count);
}

function getFew(at: usize, count: u32): v128 {
  let x = f32x4.splat(0);
  x = f32x4.replace_lane(x, 0, load<f32>(at));
  if (count > 1) x = f32x4.replace_lane(x, 1, load<f32>(at, 4));
  if (count > 2) x = f32x4.replace_lane(x, 2, load<f32>(at, 8));
  return x;
}

// @ts-ignore: decorator
@inline
function put(at: usize, x: v128, count: u32): void {
  if (count == 4) v128.store(at, x);
  else putFew(at, x, count);
}

function putFew(at: usize, x: v128, count: u32): void {
  store<f32>(at, f32x4.extract_lane(x, 0));
  if (count > 1) store<f32>(at, f32x4.extract_lane(x, 1), 4);
  if (count > 2) store<f32>(at, f32x4.extract_lane(x, 2), 8);
}

// @ts-ignore: decorator
@inline
function gate(x: v128, hard: u32): v128 {
  return hard ? hardSigmoid4(x) : sigmoid4(x);
}

/** The derivative of a gate from its output. */
// @ts-ignore: decorator
@inline
function gateSlope(y: v128, hard: u32): v128 {
  return hard ? hardSigmoidSlope4(y) : f32x4.mul(y, f32x4.sub(f32x4.splat(1), y));
}

// @ts-ignore: decorator
@inline
function tanhSlope(y: v128): v128 {
  return f32x4.sub(f32x4.splat(1), f32x4.mul(y, y));
}

/** gates [batch, 4·units]: pre-activations in, activations out. c = f·before + i·g; h = o·tanh(c). */
export function lstmForward(gates: usize, before: usize, c: usize, h: usize, batch: u32, units: u32, hard: u32): void {
  const part = <usize>units << 2;
  for (let row: u32 = 0; row < batch; row++) {
    for (let u: u32 = 0; u < units; u += 4) {
      const n = min<u32>(4, units - u);
      const at = gates + (<usize>u << 2);
      const i = gate(get(at, n), hard);
      const f = gate(get(at + part, n), hard);
      const g = tanh4(get(at + 2 * part, n));
      const o = gate(get(at + 3 * part, n), hard);
      const offset = <usize>u << 2;
      const now = f32x4.add(f32x4.mul(f, get(before + offset, n)), f32x4.mul(i, g));
      put(at, i, n);
      put(at + part, f, n);
      put(at + 2 * part, g, n);
      put(at + 3 * part, o, n);
      put(c + offset, now, n);
      put(h + offset, f32x4.mul(o, tanh4(now)), n);
    }
    gates += 4 * part;
    before += part;
    c += part;
    h += part;
  }
}

/**
 * d(pre-activations) from the activations, c and dh. `dc` is what came from the later step and becomes what goes to the
 * earlier one.
 */
export function lstmBackward(
  gates: usize,
  before: usize,
  c: usize,
  dh: usize,
  dc: usize,
  dz: usize,
  batch: u32,
  units: u32,
  hard: u32,
): void {
  const part = <usize>units << 2;
  for (let row: u32 = 0; row < batch; row++) {
    for (let u: u32 = 0; u < units; u += 4) {
      const n = min<u32>(4, units - u);
      const offset = <usize>u << 2;
      const at = gates + offset;
      const i = get(at, n);
      const f = get(at + part, n);
      const g = get(at + 2 * part, n);
      const o = get(at + 3 * part, n);
      const t = tanh4(get(c + offset, n));
      const dhNow = get(dh + offset, n);
      const dcNow = f32x4.add(get(dc + offset, n), f32x4.mul(f32x4.mul(dhNow, o), tanhSlope(t)));
      const to = dz + offset;
      put(to, f32x4.mul(f32x4.mul(dcNow, g), gateSlope(i, hard)), n);
      put(to + part, f32x4.mul(f32x4.mul(dcNow, get(before + offset, n)), gateSlope(f, hard)), n);
      put(to + 2 * part, f32x4.mul(f32x4.mul(dcNow, i), tanhSlope(g)), n);
      put(to + 3 * part, f32x4.mul(f32x4.mul(dhNow, t), gateSlope(o, hard)), n);
      put(dc + offset, f32x4.mul(dcNow, f), n);
    }
    gates += 4 * part;
    dz += 4 * part;
    before += part;
    c += part;
    dh += part;
    dc += part;
  }
}

/**
 * x [batch, 3·units]: products of the input, becomes the gates z, r, h̃. inner [batch, 3·units]: products of the state with
 * their bias; its last third is needed again backwards. h = z·before + (1 − z)·h̃ with h̃ = tanh(x + r·inner).
 */
export function gruForward(x: usize, inner: usize, before: usize, h: usize, batch: u32, units: u32, hard: u32): void {
  const part = <usize>units << 2;
  const one = f32x4.splat(1);
  for (let row: u32 = 0; row < batch; row++) {
    for (let u: u32 = 0; u < units; u += 4) {
      const n = min<u32>(4, units - u);
      const offset = <usize>u << 2;
      const at = x + offset;
      const from = inner + offset;
      const z = gate(f32x4.add(get(at, n), get(from, n)), hard);
      const r = gate(f32x4.add(get(at + part, n), get(from + part, n)), hard);
      const g = tanh4(f32x4.add(get(at + 2 * part, n), f32x4.mul(r, get(from + 2 * part, n))));
      put(at, z, n);
      put(at + part, r, n);
      put(at + 2 * part, g, n);
      put(h + offset, f32x4.add(f32x4.mul(z, get(before + offset, n)), f32x4.mul(f32x4.sub(one, z), g)), n);
    }
    x += 3 * part;
    inner += 3 * part;
    before += part;
    h += part;
  }
}

/** d(products of the input) and d(products of the state). `dh` becomes the part of d(before) that does not go through products. */
export function gruBackward(
  gates: usize,
  inner: usize,
  before: usize,
  dh: usize,
  dx: usize,
  dInner: usize,
  batch: u32,
  units: u32,
  hard: u32,
): void {
  const part = <usize>units << 2;
  const one = f32x4.splat(1);
  for (let row: u32 = 0; row < batch; row++) {
    for (let u: u32 = 0; u < units; u += 4) {
      const n = min<u32>(4, units - u);
      const offset = <usize>u << 2;
      const z = get(gates + offset, n);
      const r = get(gates + offset + part, n);
      const g = get(gates + offset + 2 * part, n);
      const dhNow = get(dh + offset, n);
      const dg = f32x4.mul(f32x4.mul(dhNow, f32x4.sub(one, z)), tanhSlope(g));
      const dz = f32x4.mul(f32x4.mul(dhNow, f32x4.sub(get(before + offset, n), g)), gateSlope(z, hard));
      const dr = f32x4.mul(f32x4.mul(dg, get(inner + offset + 2 * part, n)), gateSlope(r, hard));
      const toX = dx + offset;
      const toInner = dInner + offset;
      put(toX, dz, n);
      put(toX + part, dr, n);
      put(toX + 2 * part, dg, n);
      put(toInner, dz, n);
      put(toInner + part, dr, n);
      put(toInner + 2 * part, f32x4.mul(dg, r), n);
      put(dh + offset, f32x4.mul(dhNow, z), n);
    }
    gates += 3 * part;
    inner += 3 * part;
    dx += 3 * part;
    dInner += 3 * part;
    before += part;
    dh += part;
  }
}
