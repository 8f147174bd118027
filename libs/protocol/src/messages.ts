/**
 * Control messages: the JSON payload of frames of type `control`. They are small, checked by schema on arrival, and few: about
 * four per member and round. Everything bulky travels as gradient or parameter frames. docs/protocol.md §5 has them as tables.
 *
 *   who → whom                 messages
 *   accepting → dialling side  challenge
 *   either side of any link    heartbeat
 *   worker → every server      hello, pull, residual-pull, fetch
 *   worker → coordinator       leave, contribution, evaluated, item-non-finite, failed
 *   server → worker            welcome, credit, dropped, residual-pull, refused
 *   coordinator → worker       view, commit, items, evaluate, tell-again, end
 *   standby → its primary      hello, replicated, updated, stopping, end
 *   primary → its standby      view, decision, commit, end, and reduced chunks as gradient frames of the root node; modes async and ssp:
 *                              update, and the chunks of its gradient as frames of its leaf
 *   server → coordinator       hello, standing, standby-link, reduced, applied, member-link, part-written, part-failed, non-finite, stopping,
 *                              replica-complete, scalars
 *   coordinator → server       view, commit, drop, pull, include, decision, tell-again, end
 *   member of a group → another  hello, prove, call, failed, leave
 *   task of a cluster → another  hello, prove, request, answer
 */
import { z } from 'zod';
import { codecSwitchSchema, paceSchema } from './codec-choice.js';
import { DATA_PLANE_ERRORS, ProtocolError, type DataPlaneErrorCode } from './errors.js';
import { isFrequent } from './frequent-messages.js';

const id = z.string().min(1).max(100);
const count = z
  .int()
  .min(0)
  .max(2 ** 40);
const u32 = z
  .int()
  .min(0)
  .max(2 ** 32 - 1);
const replicaList = z.array(z.int().min(0).max(65_535)).max(1024);
/** Bound on the sums of the loss and all metrics: as many numbers of 25 characters fit into a control message. */
export const MAX_SUMS = 16_384;
/** Sums over examples. JSON has neither NaN nor infinity: they travel as null and become NaN. */
const sums = z
  .array(
    z
      .number()
      .nullable()
      .transform((value) => value ?? NaN),
  )
  .max(MAX_SUMS);
/** Room for two validations with the metrics of 32 outputs, under names of 200 characters. */
export const MAX_COURSE_CHARACTERS = 262_144;
/** Decisions of all validations so far, as text that only libs/hosting reads. */
const course = z.string().max(MAX_COURSE_CHARACTERS);
/** Modes async and ssp: the batch of replica `replica` in round `round` of the schedule. */
const item = { round: u32, replica: z.int().min(0).max(65_535) };

/** The content of a request or an answer: a body as JSON, and the bytes of each part. */
const contentFields = { body: z.string().max(500_000), parts: z.array(count).max(4096) };

export const membersSchema = z
  .array(z.strictObject({ id, seat: z.int().min(0), incarnation: z.int().min(0), replicas: replicaList }))
  .max(4096);
/** Members with the replicas that they compute. A member without replicas stands by. */
export type Members = z.output<typeof membersSchema>;

/** One server's part of a checkpoint in the store. */
export const checkpointPartSchema = z.strictObject({
  server: z.int().min(0),
  key: z.string().max(1000),
  bytes: count,
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  tensors: z.array(z.string().max(300)).max(16_384),
});
export type CheckpointPart = z.output<typeof checkpointPartSchema>;

/** Bound on trust ratios, which may be large: about the largest float32. */
const LARGEST_FACTOR = 3.4e38;
/** Sums of squares, by variable, of the parts that lie in a chunk. */
const variableSums = z.array(z.tuple([u32, z.number().min(0)])).max(10_000);

const decisionFields = {
  skip: z.boolean(),
  examples: count,
  scale: z.number().min(0).max(1),
  variables: z.array(z.tuple([u32, z.number().min(0).max(LARGEST_FACTOR)])).max(10_000),
};
const decisionSchema = z.strictObject(decisionFields);

/** Work items that may be issued beyond the first one that is not done. It bounds done sets, however slow one worker is. */
export const MAX_ITEMS_AHEAD = 65_536;

/** Modes async and ssp: the work items that a shard is done with, by number (round · R + replica). */
const doneSetSchema = z.strictObject({
  /** All items before it are done. */
  watermark: count,
  /** Bitmap (base64) of the items from the watermark on that are done. */
  beyond: z.string().max(20_000),
  /** Items that it was told to leave out, whether it had applied them or not: the newest, one by one. */
  dropped: z.array(count).max(MAX_ITEMS_AHEAD),
  /** Older ones, which are done at every shard: their examples, and the number after the last of them. */
  droppedBefore: z.strictObject({ examples: z.int().min(0), end: count }),
  /** The `since` of the VIEW that it follows; 0 for none. */
  since: u32,
});
export type DoneSetMessage = z.output<typeof doneSetSchema>;

/** Bytes on the sockets of a worker, both ways, headers included; and what the same frames would have been without a codec. */
export const trafficSchema = z.strictObject({
  toServersBytes: z.int().min(0),
  toWorkersBytes: z.int().min(0),
  denseToServersBytes: z.int().min(0),
  denseToWorkersBytes: z.int().min(0),
});
export type TrafficBytes = z.output<typeof trafficSchema>;

export const messageSchema = z.discriminatedUnion('type', [
  /** First frame of the accepting side. HELLO has to repeat it, so a HELLO that was recorded on another connection is worthless. */
  z.strictObject({ type: z.literal('challenge'), challenge: z.string().min(1).max(64) }),
  /** First frame of the dialling side. `incarnation` is which holder of the seat it is for, from 0; servers give their index as `seat`. */
  z.strictObject({
    type: z.literal('hello'),
    /** The challenge of this connection; the transport fills it in. */
    challenge: z.string().max(64).optional(),
    token: z.string().max(4096),
    run: z.uuid(),
    role: z.enum(['worker', 'server', 'standby', 'member']),
    id,
    host: z.string().max(255),
    seat: z.int().min(0).max(65_535),
    incarnation: z.int().min(0),
    /** Engine fingerprint; empty for servers. */
    fingerprint: z.string().max(300),
    /** Measured examples per second of a worker, in runs with mixed engines. */
    speed: z.number().positive().max(1e12).optional(),
    /** Hash of the layout that the peer derived. */
    layout: z.string().max(64),
  }),
  /**
   * The peer is admitted. `round` is the round this server gathers; generation `round` follows, then what is applied of `round` + 1.
   * `applied` is the bitmap (base64, bit per owned chunk in order of its index in the shard) of chunks of `round` that are applied, or whose sum is fixed.
   */
  z.strictObject({
    type: z.literal('welcome'),
    id,
    server: z.int().min(0),
    round: u32,
    view: u32,
    term: u32,
    applied: z.string().max(65_536),
    /** Places of chunks that the worker may send beyond `base`, the lowest that is not complete in `round`; both are 0 in modes async and ssp. */
    window: count,
    base: count,
    phase: z.string().max(30),
    /** Mode sync: the trees of these chunks (a bitmap, as `applied`) hold the replicas from `lo` to `hi` - 1 already. */
    nodes: z
      .array(z.strictObject({ lo: z.int().min(0).max(65_535), hi: z.int().min(1).max(65_536), chunks: z.string().max(65_536) }))
      .max(1024)
      .optional(),
    /** The attempt began with a checkpoint in front of `round`, which has what codecs have kept of replicas in this round. */
    residuals: u32.optional(),
  }),
  /** A shard to a worker: the lowest place of the round whose chunk is not complete now. */
  z.strictObject({ type: z.literal('credit'), round: u32, base: count }),
  /** A shard to a worker: what it sent of these chunks (a bitmap, as in WELCOME) was dropped while no view named it; it is to be sent again. */
  z.strictObject({ type: z.literal('dropped'), round: u32, chunks: z.string().max(65_536) }),
  z.strictObject({
    type: z.literal('refused'),
    code: z.enum(Object.keys(DATA_PLANE_ERRORS) as [DataPlaneErrorCode, ...DataPlaneErrorCode[]]),
    message: z.string().max(2000),
  }),
  /**
   * Membership `view`, in force at once, for `round` (which is still gathered) and later ones. Modes async and ssp: `since` is the term in
   * which this coordinator took over from another. From then on no shard applies a gradient whose parameters were fetched for the former one.
   */
  z.strictObject({
    type: z.literal('view'),
    view: u32,
    term: u32,
    round: u32,
    members: membersSchema,
    since: u32.optional(),
    /** With `codec: auto`, once one is picked. */
    codec: codecSwitchSchema.optional(),
  }),
  /**
   * Round `round` is committed: generation `round` may go. `view` and `members` hold for the next round. With `checkpoint`, to servers:
   * take a snapshot of generation `round` + 1 before anything else happens to it, and write it; to workers, where the codec keeps something of replicas:
   * hold what this round has left of them for the servers. With `handedOn`, replicas that other workers compute from now on: who had them holds what this
   * round has left of them until the next COMMIT, and who has them now may pull it.
   */
  z.strictObject({
    type: z.literal('commit'),
    round: u32,
    view: u32,
    term: u32,
    members: membersSchema.optional(),
    checkpoint: z.boolean().optional(),
    handedOn: replicaList.min(1).optional(),
    /** To servers: the decisions of a validation of this generation (validations.ts in libs/exchange). */
    course: course.optional(),
    /** To servers: this generation is the best of all that were validated. */
    best: z.boolean().optional(),
    /** To workers: the run ends with this round, before its last one. */
    last: z.boolean().optional(),
    /** With `codec: auto`: in the two rounds before it changes. */
    codec: codecSwitchSchema.optional(),
  }),
  /** A shard's part of the checkpoint of `generation` is stored. `missing`: where it has what codecs have kept, the replicas of which it lacks some. */
  z.strictObject({ type: z.literal('part-written'), generation: u32, file: checkpointPartSchema, missing: replicaList.optional() }),
  z.strictObject({ type: z.literal('part-failed'), generation: u32, code: z.string().max(100), message: z.string().max(2000) }),
  /** The gradient of a chunk has NaN or infinity; nothing of the chunk is applied. */
  z.strictObject({ type: z.literal('non-finite'), round: u32, chunk: u32 }),
  /** Plan two-phase, backup replicas: the gradient of `replica` has come for all chunks of the shard. */
  z.strictObject({ type: z.literal('replica-complete'), round: u32, replica: z.int().min(0) }),
  /** Plan two-phase, backup replicas: these count in the round, for every chunk; the others are left out. */
  z.strictObject({ type: z.literal('include'), round: u32, replicas: replicaList.min(1) }),
  /** Plan two-phase: every chunk of the shard is added up, and the decision is awaited. `squares` is Σ g² by variable (with lamb: of its steps), `weights` is Σ w². */
  z.strictObject({
    type: z.literal('scalars'),
    round: u32,
    chunks: z
      .array(z.strictObject({ chunk: u32, isFinite: z.boolean(), squares: variableSums, weights: variableSums.optional() }))
      .max(4096),
  }),
  /** Plan two-phase: apply the round, over `examples`, scaled as a whole and by variable (with lamb and lars by its trust ratio); or leave it out. */
  z.strictObject({ type: z.literal('decision'), round: u32, ...decisionFields }),
  /** A standby has applied a reduced chunk that its primary has forwarded (or had applied it before). */
  z.strictObject({ type: z.literal('replicated'), round: u32, chunk: u32 }),
  /** A primary's standby has connected or was dropped: from then on the loss of this server is covered or not. */
  z.strictObject({ type: z.literal('standby-link'), up: z.boolean(), id: id.nullable(), why: z.string().max(300) }),
  /**
   * Position of a server: sent after HELLO to a coordinator, in runs with standbys, and as the answer to `tell-again`. A higher `term`
   * says that it has taken over its shard. `missing` are the replicas that some of its chunks lack.
   */
  z.strictObject({
    type: z.literal('standing'),
    round: u32,
    view: u32,
    term: u32,
    isReduced: z.boolean(),
    decision: decisionSchema.optional(),
    course: course.optional(),
    missing: replicaList.optional(),
    marks: doneSetSchema.optional(),
  }),
  /** A server was told to end: the attempt has until its deadline to take a last checkpoint. */
  z.strictObject({ type: z.literal('stopping'), reason: z.string().max(300) }),
  /** The replica step of (round, replica) is done: its examples and metric sums (loss first). Sent before its gradient. */
  z.strictObject({
    type: z.literal('contribution'),
    round: u32,
    replica: z.int().min(0),
    examples: count,
    sums,
    /** With a codec that keeps something of each replica: what the round before had left of this one was not there. */
    lost: z.enum(['absent', 'outdated']).optional(),
  }),
  /** All chunks of the shard are applied for `round`. */
  z.strictObject({ type: z.literal('reduced'), round: u32 }),
  /** A shard's view of a worker's socket: closed, or back. */
  z.strictObject({ type: z.literal('member-link'), id, up: z.boolean() }),
  /**
   * `progress` is a count that moves whenever the compute thread moves. A worker that `rests` computes nothing, has nothing left to send,
   * and was sent nothing since its heartbeat before.
   */
  z.strictObject({
    type: z.literal('heartbeat'),
    progress: count,
    rests: z.boolean().optional(),
    traffic: trafficSchema.optional(),
    pace: paceSchema.optional(),
    echo: u32.optional(),
  }),
  /** The present round stands still: send everything that belongs to it again. Receivers drop what they have already. */
  z.strictObject({ type: z.literal('tell-again') }),
  /** Ask for one chunk of a generation (a transfer was cut, or the coordinator collects the weights). */
  z.strictObject({ type: z.literal('pull'), generation: u32, chunk: u32 }),
  /** Ask for a chunk of what round `round` has left of a replica: a shard for its checkpoint, or a worker that goes on from one. */
  z.strictObject({ type: z.literal('residual-pull'), round: u32, replica: z.int().min(0).max(65_535), chunk: u32 }),
  /** Measure generation `generation` on rows [from, to) of the evaluation split. */
  z.strictObject({ type: z.literal('evaluate'), generation: u32, blocks: z.array(z.strictObject({ from: count, to: count })).max(4096) }),
  z.strictObject({ type: z.literal('evaluated'), generation: u32, from: count, to: count, examples: count, sums }),
  /** A worker gives its replicas back, at the latest after the present round. */
  z.strictObject({ type: z.literal('leave'), reason: z.string().max(300) }),
  /** All was sent that others may want of what COMMIT(round) has handed on: a member that leaves is not needed any more. */
  z.strictObject({ type: z.literal('handed-on'), round: u32 }),
  /** A worker's compute thread cannot do its part (an engine fault); its replicas go to others. */
  z.strictObject({
    type: z.literal('failed'),
    code: z.string().max(100),
    message: z.string().max(2000),
    round: u32,
    replica: z.int().min(-1),
  }),
  /** All work items that this member holds now, in the order to compute them; items that are not named any more are counted, or held by somebody else. */
  z.strictObject({ type: z.literal('items'), items: z.array(z.strictObject(item)).max(8), waitsFor: z.string().max(300).nullable() }),
  /**
   * Asks for all chunks of the shard as they are now, to compute this work item; with replica −1, to measure the evaluation split. `n` is the
   * number of the fetch: the frames of the answer have it as their view.
   */
  z.strictObject({ type: z.literal('fetch'), n: u32, round: u32, replica: z.int().min(-1).max(65_535) }),
  /** The shard is done with a work item: its update is applied (or left out), `staleness` updates after its parameters were fetched. `isDropped`: it knows of the DROP. */
  z.strictObject({ type: z.literal('applied'), ...item, staleness: count, isDropped: z.boolean().optional() }),
  /**
   * To a standby: thing number `sequence` that its primary has done with a work item. The chunks of its gradient follow, as they went into the
   * optimizer (after the delay compensation); with `isDropped` none do.
   */
  z.strictObject({ type: z.literal('update'), sequence: count, ...item, staleness: count, isDropped: z.boolean() }),
  /** A standby has done everything up to `sequence`. */
  z.strictObject({ type: z.literal('updated'), sequence: count }),
  /** Leave a work item out: its gradient was not finite, and the run skips such items. */
  z.strictObject({ type: z.literal('drop'), ...item }),
  /** A worker's gradient of a work item has NaN or infinity. It is not pushed. */
  z.strictObject({ type: z.literal('item-non-finite'), ...item }),
  /** Between members of a group: whoever knows the shared secret can make the proof of both sides' nonces (libs/collectives/src/proof.ts). */
  z.strictObject({ type: z.literal('prove'), nonce: z.string().min(1).max(64), proof: z.string().max(64) }),
  /**
   * Between members of a group: this member begins collective operation `number`. `what` must be the same for all; `values` (base64) are its own.
   * With `failures` it cannot take its part, and the operation is left out by all.
   */
  z.strictObject({
    type: z.literal('call'),
    number: u32,
    what: z.string().max(2000),
    values: z.string().max(65_536),
    failures: z
      .array(z.strictObject({ replica: z.int().min(-1), layer: z.string().max(300).optional(), message: z.string().max(2000) }))
      .max(1024),
  }),
  /**
   * Between the tasks of a cluster of the library with parameter servers: asks for something by its name. `body` is JSON that only libs/strategies
   * reads. Parts of so many bytes follow as parameter frames: `round` is the number, `view` 0, `chunk` counts the pieces of at most 4 MiB.
   */
  z.strictObject({ type: z.literal('request'), number: u32, name: z.string().min(1).max(100), ...contentFields }),
  /** What a request has come to; its parts follow as those of a request, with `view` 1. With `error` it has failed, and has no parts. */
  z.strictObject({
    type: z.literal('answer'),
    number: u32,
    ...contentFields,
    error: z.strictObject({ code: z.string().max(100), message: z.string().max(2000) }).optional(),
  }),
  z.strictObject({ type: z.literal('end'), outcome: z.enum(['finished', 'paused', 'cancelled', 'failed']), message: z.string().max(2000) }),
]);
export type Message = z.output<typeof messageSchema>;
export type MessageOf<T extends Message['type']> = Extract<Message, { type: T }>;

const encoder = new TextEncoder();

export function encodeMessage(message: Message): Uint8Array {
  return encoder.encode(JSON.stringify(message));
}

/** @throws ProtocolError BAD_MESSAGE */
export function decodeMessage(payload: Uint8Array): Message {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.length).toString('utf8'));
  } catch (cause) {
    throw new ProtocolError('BAD_MESSAGE', `not JSON: ${(cause as Error).message.slice(0, 100)}`);
  }
  if (isFrequent(value, MAX_SUMS)) return value as Message;
  const result = messageSchema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  throw new ProtocolError('BAD_MESSAGE', `${issue.path.join('.') || 'type'}: ${issue.message}`.slice(0, 300));
}
