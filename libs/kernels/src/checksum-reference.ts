/**
 * XXH3-64 with seed 0 in plain TypeScript, as https://github.com/Cyan4973/xxHash (doc/xxhash_spec.md) defines it: what the kernel is compared with. It is slow.
 */

/** The default secret of XXH3. */
export const SECRET: Uint8Array = Uint8Array.from(
  (
    'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f' +
    'cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c' +
    '3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8' +
    'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364' +
    'eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e' +
    '2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e'
  ).match(/../g)!,
  (digits) => parseInt(digits, 16),
);

const MASK = (1n << 64n) - 1n;
const P32_1 = 0x9e3779b1n;
const P32_2 = 0x85ebca77n;
const P32_3 = 0xc2b2ae3dn;
const P64_1 = 0x9e3779b185ebca87n;
const P64_2 = 0xc2b2ae3d27d4eb4fn;
const P64_3 = 0x165667b19e3779f9n;
const P64_4 = 0x85ebca77c2b2ae63n;
const P64_5 = 0x27d4eb2f165667c5n;
const MIX_1 = 0x165667919e3779f9n;
const MIX_2 = 0x9fb21c651e98df25n;

const view = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
const secret = view(SECRET);
const key = (at: number): bigint => secret.getBigUint64(at, true);
const low = (x: bigint): bigint => x & 0xffffffffn;

function folded(a: bigint, b: bigint): bigint {
  const product = a * b;
  return (product & MASK) ^ (product >> 64n);
}

function avalanche(x: bigint): bigint {
  const y = ((x ^ (x >> 37n)) * MIX_1) & MASK;
  return y ^ (y >> 32n);
}

function avalanche64(x: bigint): bigint {
  const y = ((x ^ (x >> 33n)) * P64_2) & MASK;
  const z = ((y ^ (y >> 29n)) * P64_3) & MASK;
  return z ^ (z >> 32n);
}

const rotated = (x: bigint, by: bigint): bigint => ((x << by) | (x >> (64n - by))) & MASK;

const mixed = (input: DataView, at: number, keyAt: number): bigint =>
  folded(input.getBigUint64(at, true) ^ key(keyAt), input.getBigUint64(at + 8, true) ^ key(keyAt + 8));

/** Hash of 0 to 8 bytes. */
function ofFew(bytes: Uint8Array): bigint {
  const { length } = bytes;
  if (length === 0) return avalanche64(key(56) ^ key(64));
  if (length < 4) {
    const joined = (bytes[0]! << 16) | (bytes[length >> 1]! << 24) | bytes[length - 1]! | (length << 8);
    return avalanche64(BigInt(joined >>> 0) ^ low(key(0)) ^ (key(0) >> 32n));
  }
  const input = view(bytes);
  const x = (BigInt(input.getUint32(length - 4, true)) + (BigInt(input.getUint32(0, true)) << 32n)) ^ key(8) ^ key(16);
  const y = ((x ^ rotated(x, 49n) ^ rotated(x, 24n)) * MIX_2) & MASK;
  const z = ((y ^ ((y >> 35n) + BigInt(length))) * MIX_2) & MASK;
  return z ^ (z >> 28n);
}

/** Hash of 9 to 128 bytes. */
function ofShort(input: DataView, length: number): bigint {
  if (length <= 16) {
    const [first, last] = [input.getBigUint64(0, true) ^ key(24) ^ key(32), input.getBigUint64(length - 8, true) ^ key(40) ^ key(48)];
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setBigUint64(0, first, true);
    return avalanche((BigInt(length) + bytes.getBigUint64(0, false) + last + folded(first, last)) & MASK);
  }
  let sum = BigInt(length) * P64_1;
  for (let i = 0; i <= Math.floor((length - 1) / 32); i++)
    sum += mixed(input, 16 * i, 32 * i) + mixed(input, length - 16 * (i + 1), 32 * i + 16);
  return avalanche(sum & MASK);
}

/** Hash of 129 to 240 bytes. */
function ofMiddle(input: DataView, length: number): bigint {
  let first = BigInt(length) * P64_1;
  for (let i = 0; i < 8; i++) first += mixed(input, 16 * i, 16 * i);
  let rest = avalanche(first & MASK) + mixed(input, length - 16, 119);
  for (let i = 8; i < Math.floor(length / 16); i++) rest += mixed(input, 16 * i, 16 * (i - 8) + 3);
  return avalanche(rest & MASK);
}

/** Adds a stripe of 64 bytes to the accumulators. */
function addStripe(sums: bigint[], input: DataView, at: number, keyAt: number): void {
  const words = sums.map((_, i) => input.getBigUint64(at + 8 * i, true));
  words.forEach((word, i) => {
    const keyed = word ^ key(keyAt + 8 * i);
    sums[i ^ 1]! += word;
    sums[i]! += low(keyed) * (keyed >> 32n);
  });
  sums.forEach((sum, i) => (sums[i] = sum & MASK));
}

function ofMany(input: DataView, length: number): bigint {
  const sums = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1];
  const stripes = Math.floor((length - 1) / 64);
  for (let stripe = 0; stripe < stripes; stripe++) {
    addStripe(sums, input, 64 * stripe, 8 * (stripe % 16));
    if (stripe % 16 === 15) sums.forEach((sum, i) => (sums[i] = ((sum ^ (sum >> 47n) ^ key(128 + 8 * i)) * P32_1) & MASK));
  }
  addStripe(sums, input, length - 64, 121);
  let merged = BigInt(length) * P64_1;
  for (let i = 0; i < 8; i += 2) merged += folded(sums[i]! ^ key(11 + 8 * i), sums[i + 1]! ^ key(19 + 8 * i));
  return avalanche(merged & MASK);
}

/** All 64 bits. */
export function xxh3(bytes: Uint8Array): bigint {
  const { length } = bytes;
  if (length <= 8) return ofFew(bytes);
  if (length <= 128) return ofShort(view(bytes), length);
  return length <= 240 ? ofMiddle(view(bytes), length) : ofMany(view(bytes), length);
}

/** The low 32 bits: what the kernel returns. */
export const checksum = (bytes: Uint8Array): number => Number(low(xxh3(bytes)));
