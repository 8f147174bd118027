/** The longest messages of the largest run that the limits allow: each is taken by its schema, and fits into a control frame. */
import { ALL_SUMS_MAX, createLayout } from '@paceline/learning';
import {
  MAX_CONTROL_BYTES,
  MAX_COURSE_CHARACTERS,
  MAX_SUMS,
  MAX_ITEMS_AHEAD,
  decodeMessage,
  encodeMessage,
  type Message,
} from '@paceline/protocol';
import { LIMITS } from '@paceline/spec';
import { describe, expect, test } from 'vitest';

const LONGEST_NUMBER = -1.2345678901234567e-300;
const u32 = 2 ** 32 - 1;
const largest = createLayout({
  variables: [
    { path: 'w', shape: [LIMITS.modelParameters - 1], section: 'trainable', initializer: { name: 'zeros', config: {} } },
    { path: 's', shape: [1], section: 'state', initializer: { name: 'zeros', config: {} } },
  ] as never,
  parameterCount: LIMITS.modelParameters - 1,
  stateCount: 1,
});
const chunks = Array.from({ length: largest.chunks.length }, (_, index) => index);
const replicas = Array.from({ length: LIMITS.replicas }, (_, replica) => replica);
const variables = Array.from({ length: LIMITS.modelVariables }, (_, variable): [number, number] => [variable, Math.abs(LONGEST_NUMBER)]);
const numbers = { view: u32, term: u32, round: u32 };
/** As many as there may be seats, with the longest ids. */
const members = replicas.map((replica) => ({ id: `w${replica}`.padEnd(100, '"'), seat: replica, incarnation: u32, replicas: [replica] }));
const decision = { skip: false, examples: LIMITS.globalBatchExamples, scale: Math.abs(LONGEST_NUMBER), variables };
/** Every variable once, and each border between two chunks cuts one in two. */
const sums = chunks.map((chunk) => variables.filter((_, i) => i % chunks.length === chunk).concat([[chunk, Math.abs(LONGEST_NUMBER)]]));
const scalars = chunks.map((chunk) => ({ chunk, isFinite: true, squares: sums[chunk]!, weights: sums[chunk] }));
/** As JSON has quotes in it that are told once more. */
const course = '"val_loss":1'.repeat(MAX_COURSE_CHARACTERS).slice(0, MAX_COURSE_CHARACTERS);
/** Parameters, and two slots. */
const tensors = ['parameters', 'firstMoment', 'secondMoment'].flatMap((name) => chunks.map((chunk) => `${name}/${chunk}`));

const LONGEST: readonly Message[] = [
  { type: 'view', ...numbers, members },
  { type: 'commit', ...numbers, members, checkpoint: true, best: true, course },
  {
    type: 'contribution',
    round: u32,
    replica: 1023,
    examples: u32,
    sums: new Array<number>(MAX_SUMS).fill(LONGEST_NUMBER),
    lost: 'outdated',
  },
  {
    type: 'welcome',
    id: 'w',
    server: 0,
    ...numbers,
    applied: Buffer.alloc(Math.ceil(chunks.length / 8), 255).toString('base64'),
    window: chunks.length,
    base: chunks.length,
    phase: 'GATHERING',
  },
  { type: 'dropped', round: u32, chunks: Buffer.alloc(Math.ceil(chunks.length / 8), 255).toString('base64') },
  { type: 'scalars', round: u32, chunks: scalars },
  { type: 'decision', round: u32, ...decision },
  { type: 'standing', ...numbers, isReduced: true, decision, missing: replicas, course },
  {
    type: 'standing',
    ...numbers,
    isReduced: false,
    marks: {
      watermark: LIMITS.rounds * LIMITS.replicas,
      beyond: Buffer.alloc(MAX_ITEMS_AHEAD / 8 + 1, 255).toString('base64'),
      since: u32,
      dropped: Array.from({ length: MAX_ITEMS_AHEAD }, (_, i) => LIMITS.rounds * LIMITS.replicas - i),
      droppedBefore: { examples: Number.MAX_SAFE_INTEGER, end: LIMITS.rounds * LIMITS.replicas },
    },
  },
  { type: 'include', round: u32, replicas },
  { type: 'part-written', generation: u32, file: { server: 63, key: 'k'.repeat(300), bytes: 2 ** 32, sha256: 'ab'.repeat(32), tensors } },
  { type: 'evaluate', generation: u32, blocks: Array.from({ length: 1000 }, (_, i) => ({ from: i * 500, to: (i + 1) * 500 })) },
];

test('a metric plan has no more sums than a message', () => {
  expect(ALL_SUMS_MAX).toBe(MAX_SUMS);
});

test('the largest model has 1025 chunks', () => {
  expect(chunks.length).toBe(1025);
});

describe('the longest', () => {
  test.each(LONGEST.map((message) => [message.type, message] as const))('%s', (_, message) => {
    const bytes = encodeMessage(message);
    expect(bytes.length).toBeLessThan(MAX_CONTROL_BYTES);
    expect(decodeMessage(bytes)).toEqual(message);
  });
});
