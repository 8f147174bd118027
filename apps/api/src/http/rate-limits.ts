/**
 * How much one key may ask of one api, whatever it asks and however right it is. A bucket holds so many requests and is filled steadily. Texts of
 * GraphQL operations have a bucket of their own, because parsing and validating one takes the event loop up to 0.1 ms for each token; a text that was
 * validated before costs nothing (graphql/documents.ts). A team has four times as much as a key, so making keys does not make room.
 * In memory and bounded; each api counts for itself.
 */
import { Injectable } from '@nestjs/common';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import type { Viewer } from '../teams/authentication.js';

const TEAM_FACTOR = 4;
const MAX_BUCKETS = 10_000;
/** New GraphQL text: a token has about four characters. */
const TEXT_TOKENS_PER_SECOND = 500;
const TEXT_TOKENS_AT_ONCE = 10_000;
const CHARACTERS_PER_TOKEN = 4;

/** Buckets by name; one that nobody uses is full, so forgetting the oldest forgets little. */
export class Buckets {
  private readonly levels = new Map<string, { left: number; atMs: number }>();

  constructor(
    readonly capacity: number,
    private readonly perSecond: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** @returns what is left, and how long to wait: 0 when it was taken */
  take(name: string, amount: number): { left: number; waitSeconds: number } {
    const now = this.now();
    const level = this.levels.get(name);
    let left = level ? Math.min(this.capacity, level.left + ((now - level.atMs) / 1_000) * this.perSecond) : this.capacity;
    const asked = Math.min(amount, this.capacity);
    const waitSeconds = left >= asked ? 0 : Math.max(1, Math.ceil((asked - left) / this.perSecond));
    if (waitSeconds === 0) left -= asked;
    this.levels.delete(name);
    for (const oldest of this.levels.keys()) {
      if (this.levels.size < MAX_BUCKETS) break;
      this.levels.delete(oldest);
    }
    this.levels.set(name, { left, atMs: now });
    return { left, waitSeconds };
  }
}

export interface RateState {
  readonly limit: number;
  readonly remaining: number;
  /** Until the bucket is full again. */
  readonly resetSeconds: number;
}

@Injectable()
export class RateLimits {
  private readonly perMinute: number;
  private readonly requests: readonly [ofKey: Buckets, ofTeam: Buckets] | undefined;
  private readonly texts = bucketPair(TEXT_TOKENS_AT_ONCE, TEXT_TOKENS_PER_SECOND);

  constructor({ requestsPerMinute }: Settings) {
    this.perMinute = requestsPerMinute ?? 0;
    if (this.perMinute > 0) this.requests = bucketPair(Math.max(10, Math.ceil(this.perMinute / 5)), this.perMinute / 60);
  }

  /** Counts one request or message. Undefined without a limit. @throws Fault RATE_LIMITED */
  request(viewer: Viewer): RateState | undefined {
    if (!this.requests) return undefined;
    const left = takeBoth(this.requests, viewer, 1, `asks more than ${this.perMinute} times a minute`);
    const { capacity } = this.requests[0];
    return { limit: capacity, remaining: Math.floor(left), resetSeconds: Math.ceil(((capacity - left) * 60) / this.perMinute) };
  }

  /** Counts GraphQL text that has to be parsed and validated. @throws Fault RATE_LIMITED */
  text(viewer: Viewer, source: string, maxTokens: number): void {
    const tokens = Math.min(maxTokens, Math.ceil(source.length / CHARACTERS_PER_TOKEN));
    takeBoth(this.texts, viewer, tokens, 'sends too many new GraphQL operations: send the same text with other variables');
  }
}

const bucketPair = (capacity: number, perSecond: number): readonly [Buckets, Buckets] => [
  new Buckets(capacity, perSecond),
  new Buckets(capacity * TEAM_FACTOR, perSecond * TEAM_FACTOR),
];

/** @returns what is left of the key @throws Fault RATE_LIMITED */
function takeBoth([ofKey, ofTeam]: readonly [Buckets, Buckets], viewer: Viewer, amount: number, doing: string): number {
  const key = ofKey.take(viewer.apiKeyId, amount);
  const team = key.waitSeconds > 0 ? key : ofTeam.take(viewer.teamId, amount);
  const waitSeconds = Math.max(key.waitSeconds, team.waitSeconds);
  if (waitSeconds === 0) return key.left;
  const who = key.waitSeconds > 0 ? 'This key' : 'Your team';
  throw new Fault('RATE_LIMITED', `${who} ${doing}. Try again in ${waitSeconds} s.`, waitSeconds);
}
