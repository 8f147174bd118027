/** With `codec: auto` and `strategy: auto`: what workers have measured of the first rounds, and what was picked. */
import { z } from 'zod';

const u32 = z
  .int()
  .min(0)
  .max(2 ** 32 - 1);
const name = z.string().min(1).max(20);
const positive = z.number().min(0).max(1e15);

/** How the rounds of a worker pass: the least of those that it has measured, which the load of its machine has disturbed the least. */
export const paceSchema = z.strictObject({
  /** Exchanges that were measured; the arrival of the first generation is one, until there are two of rounds. */
  rounds: u32,
  /** From the parameters of a round to the last gradient of the worker. */
  stepMs: positive,
  /** From there to the parameters of the next round. */
  waitMs: positive,
  /** The time of the quickest answer to HELLO or to a heartbeat. */
  latencyMs: positive,
  /** Vectors that it has sent in a round, and replicas that it has computed. */
  nodes: u32,
  replicas: u32,
  /** That the worker may use. */
  cores: u32.optional(),
  /** The first round that was measured with a codec that was picked; absent before that round, and where none was picked. */
  fromRound: u32.optional(),
});
export type WorkerPace = z.output<typeof paceSchema>;

/** The codecs of a run from a round on: of the gradients of that round and the parameters of the generation of that number. */
export const codecSwitchSchema = z.strictObject({ kind: name, parameters: name, fromRound: u32 });
export type CodecSwitch = z.output<typeof codecSwitchSchema>;

/** The same with its reasons. It holds for the whole run, in later attempts too. */
export const codecChoiceSchema = codecSwitchSchema.extend({
  why: z.string().max(1000),
  measured: z.strictObject({
    stepMs: positive,
    waitMs: positive,
    latencyMs: positive,
    bytesPerSecond: positive,
    denseBytes: positive,
    /** What a round takes, and is expected to take with the codec. */
    roundMs: positive,
    expectedMs: positive,
  }),
});
/** The event of a run that has it as its data. */
export const CODEC_PICKED = 'codec.picked';
export type CodecChoice = z.output<typeof codecChoiceSchema>;

/** With `strategy: auto`: what the coordinator has measured, as the data of its event. Who holds the rows of the run picks by it. */
export const exchangeMeasuresSchema = z.strictObject({
  stepMs: positive,
  waitMs: positive,
  latencyMs: positive,
  denseBytes: positive,
  nodes: u32,
  workers: u32,
  servers: u32,
  cores: u32,
  /** What `codec: auto` had picked, with which these rounds were measured; absent where gradients and parameters travelled as float32. */
  codec: z.strictObject({ kind: name, parameters: name }).optional(),
  /** The rounds before `codec: auto` has picked, told where they may decide already: those that have its codec follow. */
  isBeforeCodec: z.literal(true).optional(),
});
export const STRATEGY_MEASURED = 'strategy.measured';
/** The event that says what was picked, and why. */
export const STRATEGY_PICKED = 'strategy.picked';
