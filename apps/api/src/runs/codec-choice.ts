/** What `codec: auto` has picked for a run, as its event tells: it holds for all of its attempts. */
import { Field, Float, Int, ObjectType } from '@nestjs/graphql';
import { CODEC_PICKED, codecChoiceSchema, type CodecChoice } from '@paceline/protocol';
import { picksCodec, type RunSpec } from '@paceline/spec';
import type { Prisma } from '../generated/prisma/client.js';

@ObjectType({ description: 'What the first rounds took, of which `codec: auto` has picked the codec.' })
export class CodecMeasures {
  @Field(() => Float, { description: 'Computing, of the slowest worker.' })
  stepMs!: number;
  @Field(() => Float, { description: 'From the last gradient of a worker to the next parameters, of the worker that waited least.' })
  waitMs!: number;
  @Field(() => Float, { description: 'From HELLO to its answer.' })
  latencyMs!: number;
  @Field(() => Float, {
    description: 'Gradients and parameters of a round, over the wait less the latency; 0 where the latency is all of it.',
  })
  bytesPerSecond!: number;
  @Field(() => Float, { description: 'All parameters as float32.' })
  denseBytes!: number;
  @Field(() => Float, { description: 'A round without a codec.' })
  roundMs!: number;
  @Field(() => Float, { description: 'What a round was expected to take with the codec that was picked.' })
  expectedMs!: number;
}

@ObjectType({ description: 'The codec that `codec: auto` has picked. It holds for all attempts of the run.' })
export class PickedCodec {
  @Field({ description: 'Of gradients; none where it saves too little.' })
  kind!: string;
  @Field({ description: 'Of parameters.' })
  parameters!: string;
  @Field(() => Int, { description: 'The first round with it.' })
  fromRound!: number;
  @Field({ description: 'The numbers, and what was expected of each codec.' })
  why!: string;
  @Field(() => CodecMeasures, { description: 'What was measured.' })
  measured!: CodecMeasures;
}

/** Null before it has picked, and where the spec names the codec. */
export async function codecChoiceOf(
  database: { readonly runEvent: Pick<Prisma.TransactionClient['runEvent'], 'findFirst'> },
  { id, spec }: { readonly id: string; readonly spec: unknown },
): Promise<CodecChoice | null> {
  if (!picksCodec(spec as Pick<RunSpec, 'codec'>)) return null;
  const event = await database.runEvent.findFirst({ where: { runId: id, type: CODEC_PICKED }, orderBy: { seq: 'desc' } });
  return codecChoiceSchema.safeParse(event?.data).data ?? null;
}
