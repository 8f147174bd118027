/** The state table of the member of modes async and ssp, and what it is given. The machine is in token-member.ts. */
import type { Outcome } from '../rounds/coordinator-table.js';
import type { StateRows } from '../rounds/state-table.js';
import type { MemberChunk } from '../transfer/chunks.js';
import type { Token } from './marks.js';

export type TokenMemberState = 'WAITING' | 'FETCHING' | 'COMPUTING' | 'OVER';

export const TOKEN_MEMBER_ROWS = {
  welcome: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server',
    does: 'send contributions and gradients of held tokens again; fetch again what was being fetched',
    next: '–',
  },
  tokens: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'TOKENS',
    does: 'let gradients of tokens go that are not named; a token that is not named is fetched anew if it comes again; start the first one',
    next: '–',
  },
  takenOver: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server in a higher term',
    does: 'its standby has taken the shard over, and knows of no fetch: let gradients go, compute all held tokens from parameters that are fetched anew',
    next: '–',
  },
  staleTerm: {
    from: 'any',
    event: 'a message or a chunk of an older term than the shard has',
    does: 'refuse it: STALE_TERM; it comes from a former primary',
    next: '–',
  },
  toldAgain: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'TELL-AGAIN: nothing moves',
    does: 'send contributions and gradients of held tokens again; fetch again what was being fetched',
    next: '–',
  },
  view: { from: ['WAITING', 'FETCHING', 'COMPUTING'], event: 'VIEW', does: 'take its number and members', next: '–' },
  fetch: {
    from: ['WAITING'],
    event: 'a token is held that is not computed, or blocks of the evaluation split are',
    does: 'FETCH to every server',
    next: ['FETCHING'],
  },
  parameters: { from: ['FETCHING'], event: 'chunk of the token that is fetched', does: 'keep it', next: '–' },
  complete: { from: ['FETCHING'], event: 'the last chunk has come', does: 'compute', next: ['COMPUTING', 'WAITING'] },
  parametersStale: { from: 'any', event: 'any other chunk', does: 'drop it', next: '–' },
  computed: {
    from: ['COMPUTING'],
    event: 'the compute thread has the gradient',
    does: 'contribution to the coordinator, the gradient to every shard; go on with the next token',
    next: ['WAITING'],
  },
  obsolete: { from: ['COMPUTING'], event: 'the same, of a token that was taken back', does: 'let it go', next: ['WAITING'] },
  nonFinite: { from: ['COMPUTING'], event: 'the gradient has NaN or infinity', does: 'say so, push nothing', next: ['WAITING'] },
  measured: { from: ['COMPUTING'], event: 'measures of a block', does: 'EVALUATED to the coordinator', next: ['WAITING'] },
  detached: {
    from: 'any',
    event: 'the connection to the coordinator closes',
    does: 'the tokens are taken back there: let everything go',
    next: '–',
  },
  end: { from: 'any', event: 'END or leave granted', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<TokenMemberState>;

/** What the member asks of the compute thread; answers come through `contribution` and `node`, `nonFinite`, `evaluated`, `failed`. */
export interface TokenComputePort {
  /** Compute a token from the parameters that are in the store now. @param next the token that follows, as far as is known: its rows can be prepared */
  token(token: Token, next: Token | undefined): void;
  /** Measure blocks of the evaluation split with the parameters that are in the store now. */
  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void;
}

export interface TokenMemberOptions {
  readonly id: string;
  readonly attempt: number;
  readonly chunks: readonly MemberChunk[];
  readonly servers: number;
  /** The flat vector in shared memory. It is written only while nothing computes. */
  readonly store: Uint8Array;
  readonly compute: TokenComputePort;
  /** The coordinator ended this member's part. */
  onEnd(outcome: Outcome, message: string): void;
}
