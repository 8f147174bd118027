import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DATA_PLANE_ERRORS, ProtocolError } from './errors.js';
import { MAX_CONTROL_BYTES } from './frames.js';
import { isFrequent } from './frequent-messages.js';
import { decodeMessage, encodeMessage, MAX_SUMS, messageSchema, type Message } from './messages.js';

const members = [{ id: 'worker-1', seat: 0, incarnation: 1, replicas: [0, 1] }];
/** One of each type. */
const EXAMPLES: { [T in Message['type']]: Extract<Message, { type: T }> } = {
  challenge: { type: 'challenge', challenge: 'oW1n8yq0Q4k' },
  prove: { type: 'prove', nonce: 'oW1n8yq0Q4k', proof: 'bm8gcHJvb2Y' },
  request: { type: 'request', number: 1, name: 'step', body: '{"round":1}', parts: [4, 0] },
  answer: { type: 'answer', number: 1, body: 'null', parts: [], error: { code: 'STRATEGY_THREAD', message: 'a compute thread ended' } },
  call: { type: 'call', number: 1, what: 'step 1', values: '', failures: [{ replica: 0, layer: 'dense', message: 'no class 7' }] },
  hello: {
    type: 'hello',
    token: 'a.b.c',
    run: '0f2f1d3c-8c5b-4f7e-9a53-0c9f4d1b2a3e',
    role: 'worker',
    id: 'worker-1',
    host: 'node-7',
    seat: 3,
    incarnation: 2,
    fingerprint: 'wasm/simd',
    layout: 'ab12',
    challenge: 'oW1n8yq0Q4k',
  },
  welcome: {
    type: 'welcome',
    id: 'worker-1',
    server: 0,
    round: 7,
    view: 2,
    term: 1,
    applied: 'AA==',
    window: 4,
    base: 2,
    phase: 'GATHERING',
    nodes: [{ lo: 0, hi: 2, chunks: 'BA==' }],
  },
  credit: { type: 'credit', round: 7, base: 4 },
  refused: { type: 'refused', code: 'SEAT_TAKEN', message: 'seat 3' },
  view: { type: 'view', view: 2, term: 1, round: 7, members },
  commit: { type: 'commit', round: 7, view: 2, term: 1, members, checkpoint: true },
  contribution: { type: 'contribution', round: 7, replica: 1, examples: 32, sums: [12.5, 30] },
  reduced: { type: 'reduced', round: 7 },
  replicated: { type: 'replicated', round: 7, chunk: 2 },
  'standby-link': { type: 'standby-link', up: true, id: 'ps-2', why: 'it follows' },
  standing: { type: 'standing', round: 7, view: 2, term: 1, isReduced: true },
  'member-link': { type: 'member-link', id: 'worker-1', up: false },
  heartbeat: { type: 'heartbeat', progress: 12 },
  'tell-again': { type: 'tell-again' },
  pull: { type: 'pull', generation: 7, chunk: 3 },
  evaluate: { type: 'evaluate', generation: 7, blocks: [{ from: 0, to: 100 }] },
  evaluated: { type: 'evaluated', generation: 7, from: 0, to: 100, examples: 100, sums: [1, 2] },
  'handed-on': { type: 'handed-on', round: 6 },
  leave: { type: 'leave', reason: 'the slice is over' },
  failed: { type: 'failed', code: 'OUT_OF_MEMORY', message: 'no memory', round: 7, replica: -1 },
  'part-written': {
    type: 'part-written',
    generation: 8,
    file: { server: 1, key: 'runs/x/shard-1.safetensors', bytes: 4096, sha256: 'ab'.repeat(32), tensors: ['parameters/3'] },
  },
  'part-failed': { type: 'part-failed', generation: 8, code: 'DISK_FULL', message: 'no space' },
  'non-finite': { type: 'non-finite', round: 7, chunk: 3 },
  'replica-complete': { type: 'replica-complete', round: 7, replica: 3 },
  include: { type: 'include', round: 7, replicas: [0, 1, 3] },
  scalars: { type: 'scalars', round: 7, chunks: [{ chunk: 3, isFinite: true, squares: [[0, 1.5]] }] },
  decision: { type: 'decision', round: 7, skip: false, examples: 256, scale: 0.5, variables: [[0, 0.25]] },
  stopping: { type: 'stopping', reason: 'SIGTERM' },
  items: { type: 'items', items: [{ round: 7, replica: 1 }], waitsFor: 'replica 3 to catch up' },
  'residual-pull': { type: 'residual-pull', round: 7, replica: 1, chunk: 3 },
  dropped: { type: 'dropped', round: 7, chunks: 'AA==' },
  fetch: { type: 'fetch', n: 7, round: 7, replica: -1 },
  applied: { type: 'applied', round: 7, replica: 1, staleness: 3 },
  drop: { type: 'drop', round: 7, replica: 1 },
  update: { type: 'update', sequence: 12, round: 7, replica: 1, staleness: 3, isDropped: false },
  updated: { type: 'updated', sequence: 12 },
  'item-non-finite': { type: 'item-non-finite', round: 7, replica: 1 },
  end: { type: 'end', outcome: 'finished', message: 'done' },
};

const encode = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

function codeOf(payload: Uint8Array): string {
  try {
    decodeMessage(payload);
  } catch (error) {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  }
  return 'accepted';
}

describe('control messages', () => {
  it.each(Object.values(EXAMPLES))('$type comes back as it was sent', (message) => {
    expect(decodeMessage(encodeMessage(message))).toEqual(message);
  });

  it.each(Object.values(EXAMPLES))('$type is refused without one of its fields, and with one more', (message) => {
    for (const field of Object.keys(message)) {
      const { [field as 'type']: _left, ...rest } = message;
      if (message.type === 'commit' && (field === 'members' || field === 'checkpoint')) continue;
      if (message.type === 'hello' && field === 'challenge') continue; // inside a process there is none
      if (message.type === 'answer' && field === 'error') continue; // most have none
      if (message.type === 'welcome' && field === 'nodes') continue; // the trees hold nothing
      expect(codeOf(encode(rest)), field).toBe('BAD_MESSAGE');
    }
    expect(codeOf(encode({ ...message, more: 1 }))).toBe('BAD_MESSAGE');
  });

  it.each(Object.values(EXAMPLES))('$type is refused with a field of another kind, and the error names the field', (message) => {
    for (const [field, value] of Object.entries(message)) {
      if (field === 'type') continue;
      const other = typeof value === 'object' ? 'text' : { not: 'this' };
      expect(() => decodeMessage(encode({ ...message, [field]: other })), field).toThrow(`BAD_MESSAGE: ${field}`);
    }
  });

  it('a sum that is not finite arrives as NaN: a diverged loss is no broken message', () => {
    const message = { type: 'contribution', round: 7, replica: 1, examples: 32, sums: [NaN, Infinity, 3] } as const;
    expect(decodeMessage(encodeMessage({ ...message, sums: [...message.sums] }))).toEqual({ ...message, sums: [NaN, NaN, 3] });
  });

  it.each<[string, Message['type'], object]>([
    ['a fraction as a round', 'commit', { round: 1.5 }],
    ['a negative round', 'reduced', { round: -1 }],
    ['a round beyond 32 bits', 'reduced', { round: 2 ** 32 }],
    ['an empty id', 'hello', { id: '' }],
    ['a run that is no UUID', 'hello', { run: '../../etc' }],
    ['a token without bound', 'hello', { token: 'x'.repeat(4097) }],
    ['a challenge without bound', 'challenge', { challenge: 'x'.repeat(65) }],
    ['an answer without bound', 'hello', { challenge: 'x'.repeat(65) }],
    ['a role that does not exist', 'hello', { role: 'admin' }],
    ['a code that is not in the catalogue', 'refused', { code: 'NO_SUCH_CODE' }],
    ['too many metric sums', 'contribution', { sums: new Array(MAX_SUMS + 1).fill(0) }],
    ['a replica list without bound', 'view', { members: [{ ...members[0], replicas: new Array(1025).fill(0) }] }],
    ['a text without bound', 'leave', { reason: 'x'.repeat(301) }],
  ])('refuses %s', (_what, type, change) => {
    expect(codeOf(encode({ ...EXAMPLES[type], ...change }))).toBe('BAD_MESSAGE');
  });

  it('takes neither prototypes nor keys that JSON smuggles', () => {
    for (const text of [
      '{"type":"heartbeat","progress":1,"__proto__":{"up":true}}',
      '{"type":"heartbeat","progress":1,"constructor":{}}',
    ]) {
      expect(codeOf(Buffer.from(text))).toBe('BAD_MESSAGE');
    }
    expect(({} as Record<string, unknown>).up).toBeUndefined();
  });

  it('makes of arbitrary bytes nothing but BAD_MESSAGE', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(codeOf(bytes)).toBe('BAD_MESSAGE');
      }),
      { numRuns: 500 },
    );
  });

  it('makes of arbitrary JSON nothing but BAD_MESSAGE, or what its schema says', () => {
    const types = Object.keys(EXAMPLES) as Message['type'][];
    const twisted = fc
      .tuple(fc.constantFrom(...types), fc.string(), fc.jsonValue())
      .chain(([type, key, value]) =>
        fc.constantFrom<unknown>(
          { type, [key]: value },
          { ...EXAMPLES[type], [key]: value },
          { ...EXAMPLES[type], seat: value, members: value, id: value },
        ),
      );
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), twisted), (value) => {
        const payload = encode(value);
        if (codeOf(payload) === 'accepted') expect(messageSchema.safeParse(decodeMessage(payload)).success).toBe(true);
        else expect(codeOf(payload)).toBe('BAD_MESSAGE');
      }),
      { numRuns: 500 },
    );
  });

  it('takes of the frequent messages what the schema takes, and nothing else', () => {
    const part = fc.constantFrom<unknown>(
      0,
      1,
      7,
      -1,
      0.5,
      2 ** 32 - 1,
      2 ** 32,
      2 ** 41,
      2 ** 53,
      '1',
      true,
      null,
      [],
      [0.5, -1],
      [null],
      ['1'],
      {},
    );
    const name = fc.constantFrom('round', 'base', 'view', 'term', 'replica', 'examples', 'sums', 'progress', 'rests', 'members', 'more');
    const type = fc.constantFrom('commit', 'contribution', 'credit', 'reduced', 'heartbeat', 'toString', 'pull');
    const good = fc.constantFrom<Message>(
      { type: 'commit', round: 3, view: 1, term: 1 },
      { type: 'contribution', round: 3, replica: 0, examples: 128, sums: [0.5] },
      { type: 'reduced', round: 3 },
      { type: 'credit', round: 3, base: 8 },
      { type: 'heartbeat', progress: 4, rests: false },
    );
    const changed = fc
      .tuple(fc.oneof(good, fc.record({ type })), fc.dictionary(name, part, { maxKeys: 3 }))
      .map(([base, more]) => ({ ...base, ...more }));
    let taken = 0;
    fc.assert(
      fc.property(fc.oneof(good, changed), (value) => {
        const parsed = messageSchema.safeParse(value);
        if (!isFrequent(value, MAX_SUMS)) return;
        taken++;
        expect(parsed.success && parsed.data).toEqual(value);
      }),
      { numRuns: 2000 },
    );
    expect(taken).toBeGreaterThan(200);
  });

  it('survives nesting that would exhaust a naive reader', () => {
    const depth = MAX_CONTROL_BYTES / 2;
    expect(codeOf(Buffer.from('['.repeat(depth) + ']'.repeat(depth)))).toBe('BAD_MESSAGE');
  });

  it('keeps errors short, whatever the peer sends', () => {
    expect.assertions(2);
    for (const value of [{ type: 'x'.repeat(100_000) }, { type: 'leave', reason: 'y'.repeat(100_000) }]) {
      try {
        decodeMessage(encode(value));
      } catch (error) {
        expect((error as Error).message.length).toBeLessThan(400);
      }
    }
  });
});

describe('the error catalogue', () => {
  it('says for every code what happened, in a sentence', () => {
    for (const [code, text] of Object.entries(DATA_PLANE_ERRORS)) {
      expect(code).toMatch(/^[A-Z][A-Z_]+$/);
      expect(text).toMatch(/^[A-Z].{10,}[.?]$/);
    }
  });

  it('gives the advice of the catalogue when there is no detail', () => {
    expect(new ProtocolError('SEAT_TAKEN').message).toBe(`SEAT_TAKEN: ${DATA_PLANE_ERRORS.SEAT_TAKEN}`);
    expect(new ProtocolError('SEAT_TAKEN', 'seat 3')).toMatchObject({
      code: 'SEAT_TAKEN',
      message: 'SEAT_TAKEN: seat 3',
      name: 'ProtocolError',
    });
  });
});
