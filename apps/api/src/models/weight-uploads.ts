/**
 * Weights of other programs on their way into a run: safetensors files, which clients have made of whatever a person has (`importModel` of
 * libs/models). They lie under their SHA-256 in the store of the checkpoints. A run that begins with one has a copy of its own, so an upload is
 * needed until the run is there, and is removed after a day. The hour in its key says how old it is: there are no rows for it.
 */
import type { Readable } from 'node:stream';
import { Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { LIMITS } from '@paceline/spec';
import { parseSafetensorsHeader, safetensorsHeaderBytes, StorageError, uploadedWeightsPrefix, type TensorRange } from '@paceline/storage';
import { checked, declaredBytes } from '../datasets/upload-body.js';
import { Fault } from '../fault.js';
import { heldTurns } from '../turns.js';
import { LOGGER } from '../logger.js';
import type { Viewer } from '../teams/authentication.js';
import { CheckpointStore } from './checkpoint-store.js';

const SHA256 = /^[0-9a-f]{64}$/;
/** Parsed on the loop of the api: room for all variables with long names. */
const HEADER_BYTES = 2 << 20;
const MOST = { maxTensors: LIMITS.modelVariables };
const MAX_BYTES = LIMITS.modelParameters * 4 + HEADER_BYTES;
/** A team has at most this many at a time: each may be as large as the largest model. */
const MAX_UPLOADS = 20;
const KEPT_HOURS = 24;
/** Younger ones are there for whoever asks; an older one is sent again, as it may be swept before the run is made. */
const FRESH_HOURS = 12;
const HOUR_MS = 3_600_000;
const NAME_CHARACTERS = 200;

interface Upload {
  readonly key: string;
  readonly hour: number;
  readonly sha256: string;
  readonly bytes: number;
}

/** An upload that is there, and where its variables lie. */
export interface UploadedWeights {
  readonly ranges: ReadonlyMap<string, TensorRange>;
  /** What lies behind the header. */
  data(): AsyncIterable<Uint8Array>;
}

@Injectable()
export class WeightUploads implements OnModuleInit, OnModuleDestroy {
  private readonly turns = heldTurns(2, 8, 'uploads of weights', 2);
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly checkpoints: CheckpointStore,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  onModuleInit(): void {
    if (!this.checkpoints.isThere) return;
    this.timer = setInterval(() => {
      this.sweep().catch((err: Error) => this.log.warn({ err: err.message }, 'uploaded weights could not be removed'));
    }, HOUR_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** Whether it is there, and will be for the next hours. */
  async has(viewer: Viewer, sha256: string, now = Date.now()): Promise<boolean> {
    const found = SHA256.test(sha256) ? await this.find(viewer.teamId, sha256) : undefined;
    return found !== undefined && hourOf(now) - found.hour < FRESH_HOURS;
  }

  /** @throws Fault INVALID_INPUT for what is no whole file of finite float32 variables, LIMIT_REACHED, TOO_LARGE, TOO_BUSY, SERVICE_UNAVAILABLE */
  async put(viewer: Viewer, sha256: string, declared: number | undefined, body: Readable, now = Date.now()): Promise<'stored' | 'present'> {
    if (!SHA256.test(sha256)) throw new Fault('INVALID_INPUT', 'sha256: must be the SHA-256 of the body, 64 lower-case hexadecimal digits');
    const bytes = declaredBytes(declared, MAX_BYTES);
    const { teamId } = viewer;
    return this.turns.run(teamId, async () => {
      if (await this.has(viewer, sha256, now)) return 'present';
      const others = (await this.ofTeam(teamId)).filter((one) => one.sha256 !== sha256);
      if (others.length >= MAX_UPLOADS)
        throw new Fault('LIMIT_REACHED', `The team has ${MAX_UPLOADS} uploads of weights; each is removed a day after it came.`);
      const old = await this.find(teamId, sha256);
      const key = `${uploadedWeightsPrefix(teamId)}${hourOf(now)}-${sha256}.safetensors`;
      await this.checkpoints.use(async (store) => {
        await store.put(key, verified(checked(body, bytes, sha256), bytes));
        if (old && old.key !== key) await store.remove([old.key]);
      });
      return 'stored';
    });
  }

  async open(teamId: string, sha256: string): Promise<UploadedWeights | undefined> {
    const found = await this.find(teamId, sha256);
    if (!found) return undefined;
    const { store } = this.checkpoints;
    const { headerBytes, ranges } = await this.checkpoints.use(async () => {
      const length = safetensorsHeaderBytes(await store.read(found.key, 0, 8), found.bytes);
      return { headerBytes: length, ranges: parseSafetensorsHeader(await store.read(found.key, 8, 8 + length), found.bytes, MOST) };
    });
    async function* data(): AsyncGenerator<Uint8Array, void, void> {
      let left = 8 + headerBytes;
      for await (const piece of store.stream(found!.key)) {
        if (piece.length > left) yield piece.subarray(left);
        left = Math.max(0, left - piece.length);
      }
    }
    return { ranges, data };
  }

  /** @returns uploads that were removed */
  async sweep(now = Date.now()): Promise<number> {
    const { store } = this.checkpoints;
    const old = (await store.list(uploadedWeightsPrefix())).map(uploadOf).filter((one) => one && hourOf(now) - one.hour > KEPT_HOURS);
    await store.remove(old.map((one) => one!.key));
    await store.removeUnfinished(uploadedWeightsPrefix(), KEPT_HOURS * HOUR_MS);
    return old.length;
  }

  private async find(teamId: string, sha256: string): Promise<Upload | undefined> {
    return (await this.ofTeam(teamId)).filter((one) => one.sha256 === sha256).at(-1);
  }

  private async ofTeam(teamId: string): Promise<Upload[]> {
    const found = await this.checkpoints.use((store) => store.list(uploadedWeightsPrefix(teamId)));
    return found.map(uploadOf).filter((one) => one !== undefined);
  }
}

const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS);

function uploadOf({ key, bytes }: { readonly key: string; readonly bytes: number }): Upload | undefined {
  const [, hour, sha256] = /\/(\d{1,9})-([0-9a-f]{64})\.safetensors$/.exec(key) ?? [];
  return hour === undefined ? undefined : { key, hour: Number(hour), sha256: sha256!, bytes };
}

/**
 * The bytes as they come, of a file whose header and numbers are right. One variable that is not finite would spread over the model within a round.
 * @throws Fault INVALID_INPUT
 */
export async function* verified(body: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array, void, void> {
  const refuse = (why: string): never => {
    throw new Fault('INVALID_INPUT', `The body is not a weights file: ${why}`);
  };
  let head = Buffer.alloc(0);
  let ranges: TensorRange[] | undefined;
  let at = 0;
  let rest = Buffer.alloc(0);
  for await (const piece of body) {
    let data = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    if (ranges === undefined) {
      head = Buffer.concat([head, data]);
      const parsed = headerOf(head, bytes, refuse);
      if (!parsed) {
        yield piece;
        continue;
      }
      [ranges, at] = [parsed.ranges, parsed.from];
      data = head.subarray(parsed.from);
      head = Buffer.alloc(0);
    }
    // Numbers do not end where pieces end.
    const joined = rest.length === 0 ? data : Buffer.concat([rest, data]);
    const whole = joined.length - (joined.length % 4);
    const bad = notFinite(joined.subarray(0, whole));
    if (bad >= 0) {
      const { name, from } = ranges.find((range) => range.to > at + bad)!;
      refuse(`element ${(at + bad - from) / 4} of ${shown(name)} is not a finite number`);
    }
    at += whole;
    rest = Buffer.from(joined.subarray(whole));
    yield piece;
  }
  if (ranges === undefined) refuse('it ends within its header');
}

function headerOf(head: Buffer, bytes: number, refuse: (why: string) => never): { ranges: TensorRange[]; from: number } | undefined {
  if (head.length < 8) return undefined;
  try {
    const length = safetensorsHeaderBytes(head.subarray(0, 8), bytes);
    if (length > HEADER_BYTES) return refuse(`its header has ${length} bytes; at most ${HEADER_BYTES} are read`);
    if (head.length < 8 + length) return undefined;
    const ranges = [...parseSafetensorsHeader(head.subarray(8, 8 + length), bytes, MOST).values()];
    const other = ranges.find(({ dtype }) => dtype !== 'F32');
    if (other) return refuse(`${shown(other.name)} has dtype ${other.dtype}; weights are F32`);
    return { ranges, from: 8 + length };
  } catch (error) {
    if (error instanceof StorageError) return refuse(error.message);
    throw error;
  }
}

/** A header may hold any name. */
const shown = (name: string): string => name.slice(0, NAME_CHARACTERS);

/** Where the first number lies whose exponent is all ones; -1 where all are finite. */
function notFinite(bytes: Buffer): number {
  for (let i = 0; i < bytes.length; i += 4) if ((bytes[i + 3]! & 0x7f) === 0x7f && (bytes[i + 2]! & 0x80) !== 0) return i;
  return -1;
}
