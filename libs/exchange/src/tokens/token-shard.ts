/**
 * A shard of the parameters in modes async and ssp (ROUNDS §5). It sends its chunks as they are to whoever fetches them for a token, gathers
 * all of its chunks of the token's gradient, and then applies them in one go: nothing before the last chunk has come, and each
 * token once, whoever pushes it and however often.
 *
 *   FETCH → parameters of one moment, noted by worker and token → gradient chunks → update → mark → APPLIED to the coordinator
 *
 * A chunk that a socket still reads, or that was kept for the delay compensation, is not written: the update then goes to a new region.
 * The step number of an update is the count of tokens done here plus one, so it follows from the marks alone.
 */
import { Codec, FrameType, ProtocolError, checkAttempt, type FrameHeader, type Members, type Message } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { acquireRegion, type Region } from '../rounds/regions.js';
import type { OwnedChunk } from '../rounds/shard-table.js';
import { ShardLink } from '../rounds/shard.js';
import { StateTable, type StateRows } from '../rounds/state-table.js';
import { TokenMarks, type Token, type TokenPlan } from './marks.js';

export type TokenShardState = 'SERVING' | 'OVER';

export const TOKEN_SHARD_ROWS = {
  join: { from: ['SERVING'], event: 'a worker connects', does: 'WELCOME; it fetches what it needs', next: '–' },
  fetch: {
    from: ['SERVING'],
    event: 'FETCH(token)',
    does: 'send all chunks as they are now; note how many updates they have, and keep them for the delay compensation',
    next: '–',
  },
  fetchHeld: { from: ['SERVING'], event: 'FETCH behind a gradient that is held', does: 'answer it after the gradient', next: '–' },
  chunkKept: { from: ['SERVING'], event: 'gradient chunk of a token', does: 'keep it until all chunks of the shard are there', next: '–' },
  chunkStale: {
    from: 'any',
    event: 'gradient chunk of a token that is done here, that was not fetched here, or from somebody who is no member',
    does: 'drop it and count; when the token is done say so again',
    next: '–',
  },
  gradientHeld: {
    from: ['SERVING'],
    event: 'a whole gradient of a newer view',
    does: 'hold it until VIEW has come, and the COMMIT with `cut` that may precede it',
    next: '–',
  },
  applied: {
    from: ['SERVING'],
    event: 'the last chunk of a token has come',
    does: 'update all chunks, set its mark, tell the coordinator APPLIED with its staleness',
    next: '–',
  },
  drop: { from: ['SERVING'], event: 'DROP(token)', does: 'set its mark without an update, APPLIED', next: '–' },
  dropRepeated: { from: 'any', event: 'DROP of a token that is done here', does: 'APPLIED again', next: '–' },
  view: { from: ['SERVING'], event: 'VIEW', does: 'take the members; look at held gradients again', next: '–' },
  cut: {
    from: ['SERVING'],
    event: 'COMMIT(k) with `cut`: every token before round k+1 is done here, and none beyond',
    does: 'hand all chunks as they are to the checkpoint',
    next: '–',
  },
  pull: { from: ['SERVING'], event: 'PULL of the last generation', does: 'send that chunk to the coordinator', next: '–' },
  end: { from: 'any', event: 'END', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<TokenShardState>;

/** Tokens whose parameters one worker may have fetched, or whose gradient it may be sending: it holds two at a time. */
const TOKENS_OF_WORKER = 4;

export interface TokenUpdate {
  readonly token: Token;
  /** Number of the update at this shard, from 1. */
  readonly step: number;
  /** Updates applied here since the parameters of this one were fetched. */
  readonly staleness: number;
  /** The chunk as it was fetched, for the delay compensation. */
  readonly fetched: Region | undefined;
}

export interface TokenShardOptions {
  readonly index: number;
  readonly attempt: number;
  readonly plan: TokenPlan;
  /** Rounds that are done from the start: those of the checkpoint that the attempt begins with. */
  readonly firstRound?: number;
  readonly chunks: readonly OwnedChunk[];
  /** The parameters to begin with, one region per owned chunk, in their order. */
  readonly initial: readonly Region[];
  /** Keep what a worker has fetched until its update is applied (delay compensation). */
  readonly keepsFetched: boolean;
  /** Applies one update to one chunk. `paramIn` may be `paramOut`; for the state section `gradient` is what its values change by. */
  update(chunk: OwnedChunk, update: TokenUpdate, paramIn: Region, paramOut: Region, gradient: Region): void;
  /** A checkpoint takes `generation`: one region per owned chunk, in their order, retained for whoever writes them. */
  onCut?(generation: number, regions: readonly Region[]): void;
  tellCoordinator(message: Message): void;
  /** A refused or dropped frame, for the counters. */
  onDropped?(reason: string): void;
}

interface Fetched {
  /** Updates applied here by then. */
  readonly updates: number;
  readonly regions: readonly Region[];
}

interface Gathering {
  readonly token: Token;
  view: number;
  readonly regions: Map<number, Region>;
}

/** What a link is in the middle of. */
interface LinkWork {
  readonly gathering: Map<number, Gathering>;
  /** Whole gradients that wait for a view, then fetches that came behind them. */
  held: Gathering[];
  fetches: { round: number; replica: number }[];
}

export class TokenShard {
  readonly table = new StateTable<TokenShardState, typeof TOKEN_SHARD_ROWS>('token-shard', TOKEN_SHARD_ROWS, 'SERVING');
  readonly marks: TokenMarks;
  private readonly current: Region[];
  private readonly places = new Map<number, number>();
  private readonly links = new Map<ShardLink, LinkWork>();
  /** By worker, then by token. */
  private readonly fetched = new Map<string, Map<number, Fetched>>();
  private memberIds = new Set<string>();
  private updates = 0;
  private scratch = new Uint8Array(0);
  view = 0;
  term = 0;

  constructor(private readonly options: TokenShardOptions) {
    this.marks = new TokenMarks(options.plan, options.firstRound);
    this.current = [...options.initial];
    options.chunks.forEach((chunk, place) => this.places.set(chunk.index, place));
  }

  get round(): number {
    return Math.floor(this.marks.count / this.options.plan.replicas);
  }

  /** Admits a connection whose HELLO the gate has accepted. */
  attach(id: string, connection: Connection, streams: boolean): ShardLink {
    this.table.take('join');
    for (const old of this.links.keys()) if (old.id === id && old.streams === streams) this.detach(old, true);
    const link = new ShardLink(id, connection, streams);
    this.links.set(link, { gathering: new Map(), held: [], fetches: [] });
    const { index } = this.options;
    const where = { round: this.round, view: this.view, term: this.term };
    connection.sendMessage({ type: 'welcome', id, server: index, ...where, applied: '', phase: this.table.state }, this.numbers());
    if (streams) this.options.tellCoordinator({ type: 'member-link', id, up: true });
    return link;
  }

  /** A connection is gone, and what it was sending; its worker sends it again, or somebody else computes it. */
  detach(link: ShardLink, replaced = false): void {
    const work = this.links.get(link);
    if (!work) return;
    this.links.delete(link);
    link.receiving?.release();
    link.receiving = undefined;
    for (const gathering of [...work.gathering.values(), ...work.held]) releaseAll(gathering);
    if (replaced) return link.connection.close();
    if (!this.memberIds.has(link.id)) this.forget(link.id);
    if (link.streams && this.memberIds.has(link.id) && this.table.state !== 'OVER')
      this.options.tellCoordinator({ type: 'member-link', id: link.id, up: false });
  }

  /**
   * Where the payload of a gradient frame goes: a region of the chunk's arena, or scratch when it will be dropped.
   * @throws ProtocolError for everything that a member never sends.
   */
  payloadFor(link: ShardLink, header: FrameHeader): Uint8Array {
    const { options } = this;
    if (header.type !== FrameType.gradient) throw new ProtocolError('BAD_FRAME', 'a server takes no parameters');
    checkAttempt(header, options.attempt);
    if (header.codec !== Codec.none) throw new ProtocolError('BAD_CODEC');
    const place = this.places.get(header.chunk);
    if (place === undefined) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${header.chunk}`);
    const chunk = options.chunks[place]!;
    if (header.length !== chunk.length * 4)
      throw new ProtocolError('WRONG_LENGTH', `chunk ${header.chunk} has ${chunk.length * 4} bytes, not ${header.length}`);
    if (header.nodeHi !== header.nodeLo + 1 || header.nodeLo >= options.plan.replicas)
      throw new ProtocolError('BAD_NODE', `[${header.nodeLo}, ${header.nodeHi}) is no token`);
    if (header.round >= options.plan.totalRounds) throw new ProtocolError('BAD_ROUND', `round ${header.round}`);
    if (!link.streams) throw new ProtocolError('NOT_A_MEMBER', 'this connection may only pull');
    const token = tokenOf(header);
    const work = this.links.get(link);
    if (!work || this.table.state === 'OVER' || this.marks.has(token) || !this.fetchOf(link.id, token))
      return this.scratchOf(header.length);
    const gathering = work.gathering.has(this.marks.numberOf(token)) ? 0 : 1;
    if (work.gathering.size + work.held.length + gathering > TOKENS_OF_WORKER)
      throw new ProtocolError('BAD_ROUND', `more than ${TOKENS_OF_WORKER} tokens at once`);
    link.receiving = acquireRegion(chunk.arena, chunk.length);
    return link.receiving.bytes;
  }

  /** A whole gradient frame has come. */
  data(link: ShardLink, header: FrameHeader): void {
    const region = link.receiving;
    link.receiving = undefined;
    const token = tokenOf(header);
    const work = this.links.get(link);
    if (!region || !work || this.marks.has(token)) {
      region?.release();
      const isLast = header.chunk === this.options.chunks.at(-1)!.index;
      if (isLast && this.table.state !== 'OVER' && this.marks.has(token)) this.tellApplied(token, 0);
      return this.dropped('stale');
    }
    this.table.take('chunkKept');
    const number = this.marks.numberOf(token);
    let gathering = work.gathering.get(number);
    if (!gathering) work.gathering.set(number, (gathering = { token, view: header.view, regions: new Map() }));
    gathering.regions.get(header.chunk)?.release(); // sent again
    gathering.regions.set(header.chunk, region);
    gathering.view = header.view;
    if (gathering.regions.size < this.options.chunks.length) return;
    work.gathering.delete(number);
    this.whole(link, work, gathering);
  }

  onFetch(link: ShardLink, round: number, replica: number): void {
    const work = this.links.get(link);
    if (this.table.state === 'OVER' || !work) return;
    if (replica >= this.options.plan.replicas || round > this.options.plan.totalRounds)
      throw new ProtocolError('BAD_ROUND', `round ${round}, replica ${replica}`);
    // Its own update comes first, or a lone worker would compute from parameters without it.
    if (work.held.length > 0) {
      if (work.fetches.push({ round, replica }) > TOKENS_OF_WORKER) throw new ProtocolError('BAD_ROUND', 'more fetches than tokens');
      return this.table.take('fetchHeld');
    }
    this.answer(link, round, replica);
  }

  onDrop(round: number, replica: number): void {
    const token = { round, replica };
    if (this.marks.has(token)) this.table.take('dropRepeated');
    else {
      this.table.take('drop');
      this.finish(token);
    }
    this.tellApplied(token, 0);
  }

  onView(view: number, term: number, members: Members): void {
    if (view <= this.view || this.table.state === 'OVER') return;
    this.table.take('view');
    this.view = view;
    this.term = term;
    this.memberIds = new Set(members.map(({ id }) => id));
    const linked = new Set([...this.links.keys()].map(({ id }) => id));
    for (const id of [...this.fetched.keys()]) if (!this.memberIds.has(id) && !linked.has(id)) this.forget(id);
    for (const [link, work] of [...this.links]) {
      for (const gathering of work.held.splice(0)) this.whole(link, work, gathering);
      if (work.held.length === 0) for (const { round, replica } of work.fetches.splice(0)) this.answer(link, round, replica);
    }
  }

  onCommit({ round, cut }: { readonly round: number; readonly cut?: boolean | undefined }): void {
    if (this.table.state === 'OVER' || !cut) return;
    this.table.take('cut');
    const generation = round + 1;
    // A server without chunks has no part in any token, and an empty part in every checkpoint.
    if (this.options.chunks.length > 0 && !this.marks.isCutAt(generation))
      throw new Error(`shard ${this.options.index}: a cut of round ${generation} with ${this.marks.count} tokens done`);
    this.options.onCut?.(
      generation,
      this.current.map((region) => region.retain()),
    );
  }

  /** For the coordinator, which collects the weights when nothing moves any more. */
  onPull(link: ShardLink, generation: number, chunk: number): void {
    if (this.table.state === 'OVER') return;
    const place = this.places.get(chunk);
    if (place === undefined) throw new ProtocolError('UNKNOWN_CHUNK', `chunk ${chunk}`);
    this.table.take('pull');
    if (generation === this.round) this.sendChunk(link, generation, 0, 0, place);
  }

  /** Tells members and collectors that this process lives; call it every second. */
  heartbeat(): void {
    for (const link of this.links.keys()) link.connection.sendMessage({ type: 'heartbeat', progress: this.marks.count }, this.numbers());
  }

  end(): void {
    if (this.table.state === 'OVER') return;
    this.table.take('end', 'OVER');
    for (const link of [...this.links.keys()]) this.detach(link);
    for (const id of [...this.fetched.keys()]) this.forget(id);
    for (const region of this.current) region.release();
  }

  private numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  private answer(link: ShardLink, round: number, replica: number): void {
    this.table.take('fetch');
    if (replica >= 0) this.note(link.id, { round, replica });
    this.current.forEach((_, place) => this.sendChunk(link, round, Math.max(replica, 0), replica + 1, place));
  }

  private note(id: string, token: Token): void {
    let byToken = this.fetched.get(id);
    if (!byToken) this.fetched.set(id, (byToken = new Map<number, Fetched>()));
    const number = this.marks.numberOf(token);
    this.drop(byToken, number);
    byToken.set(number, { updates: this.updates, regions: this.options.keepsFetched ? this.current.map((r) => r.retain()) : [] });
    if (byToken.size > TOKENS_OF_WORKER) this.drop(byToken, byToken.keys().next().value!);
  }

  private fetchOf(id: string, token: Token): Fetched | undefined {
    return this.fetched.get(id)?.get(this.marks.numberOf(token));
  }

  private drop(byToken: Map<number, Fetched>, number: number): void {
    for (const region of byToken.get(number)?.regions ?? []) region.release();
    byToken.delete(number);
  }

  private forget(id: string): void {
    const byToken = this.fetched.get(id);
    if (!byToken) return;
    for (const number of [...byToken.keys()]) this.drop(byToken, number);
    this.fetched.delete(id);
  }

  /** A whole gradient: applies it, holds it for a view that is on its way, or drops it. */
  private whole(link: ShardLink, work: LinkWork, gathering: Gathering): void {
    const fetched = this.fetchOf(link.id, gathering.token);
    if (this.marks.has(gathering.token) || !fetched) {
      releaseAll(gathering);
      return this.dropped('stale');
    }
    // The view that is on its way may bring its sender, or a cut that comes before this token.
    if (gathering.view > this.view) {
      work.held.push(gathering);
      return this.table.take('gradientHeld');
    }
    if (!this.memberIds.has(link.id)) {
      // Late pushes of somebody who was declared lost, mostly: the token is issued again.
      releaseAll(gathering);
      return this.dropped('not a member');
    }
    this.apply(gathering, fetched);
  }

  private apply({ token, regions }: Gathering, { updates, regions: kept }: Fetched): void {
    this.table.take('applied');
    const staleness = this.updates - updates;
    const step = this.marks.count + 1;
    this.options.chunks.forEach((chunk, place) => {
      const from = this.current[place]!;
      const to = from.isShared ? acquireRegion(chunk.arena, chunk.length) : from;
      const gradient = regions.get(chunk.index)!;
      this.options.update(chunk, { token, step, staleness, fetched: kept[place] }, from, to, gradient);
      gradient.release();
      if (to !== from) from.release();
      this.current[place] = to;
    });
    this.updates++;
    this.finish(token);
    this.tellApplied(token, staleness);
  }

  /** Marks a token, and lets go what was kept for it, here and on its way. */
  private finish(token: Token): void {
    this.marks.add(token);
    const number = this.marks.numberOf(token);
    for (const byToken of this.fetched.values()) this.drop(byToken, number);
    for (const { gathering } of this.links.values()) {
      const partial = gathering.get(number);
      if (partial) releaseAll(partial);
      gathering.delete(number);
    }
  }

  private tellApplied({ round, replica }: Token, staleness: number): void {
    this.options.tellCoordinator({ type: 'applied', round, replica, staleness });
  }

  private sendChunk(link: ShardLink, round: number, nodeLo: number, nodeHi: number, place: number): void {
    const region = this.current[place]!.retain();
    const { index } = this.options.chunks[place]!;
    link.connection.sendData(
      { type: FrameType.parameters, codec: Codec.none, ...this.numbers(), round, nodeLo, nodeHi, chunk: index },
      region.bytes,
      () => region.release(),
    );
  }

  private scratchOf(bytes: number): Uint8Array {
    if (this.scratch.length < bytes) this.scratch = new Uint8Array(bytes);
    return this.scratch.subarray(0, bytes);
  }

  private dropped(reason: string): void {
    this.table.take('chunkStale');
    this.options.onDropped?.(reason);
  }
}

function tokenOf({ round, nodeLo }: FrameHeader): Token {
  return { round, replica: nodeLo };
}

function releaseAll({ regions }: Gathering): void {
  for (const region of regions.values()) region.release();
}
