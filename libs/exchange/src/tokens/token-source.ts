/**
 * Who may compute which token next. Pure: it knows what was issued and what is done, and neither members nor connections.
 *
 *   async   free tokens: in order of their numbers, to whoever asks
 *   ssp     clocked tokens: replica r's clock is the first round of which its token is not done; (k, r) goes to the holder of
 *           replica r, once k ≤ (slowest clock) + bound (Ho et al. 2013)
 *
 * A token whose holder is gone is given back and issued again before new ones. `limit` keeps rounds back: a checkpoint is cut at a round
 * of which everything below is done and nothing above is begun.
 */
import { MAX_TOKENS_AHEAD } from '@paceline/protocol';
import { TokenMarks, type Token, type TokenPlan } from './marks.js';

export interface Wait {
  /** In words, for whoever has to wait. */
  readonly waitsFor: string;
}

export abstract class TokenSource {
  protected limitRounds: number;
  protected readonly returned = new Set<number>();
  /** Rounds of which a token was issued. */
  issuedRounds: number;

  constructor(
    protected readonly plan: TokenPlan,
    protected readonly marks: TokenMarks,
  ) {
    this.limitRounds = plan.totalRounds;
    this.issuedRounds = marks.rounds;
  }

  /** Issues no token of round `rounds` or later, until the next call. */
  limit(rounds: number): void {
    this.limitRounds = Math.min(rounds, this.plan.totalRounds);
  }

  /** Issues the next token for a member that holds `replicas`, or says what has to happen first. */
  abstract next(replicas: readonly number[]): Token | Wait;

  /**
   * A coordinator takes over: these are begun, as the shards know. What is not done of all that may be begun is issued before anything new.
   * @param isOut left out: nobody computes it any more
   */
  resume(begun: readonly Token[], isOut: (number: number) => boolean): void {
    for (const token of begun) {
      this.issuedRounds = Math.max(this.issuedRounds, token.round + 1);
      this.pass(token);
    }
    for (const token of this.passed()) {
      const number = this.marks.numberOf(token);
      if (!this.marks.has(token) && !isOut(number)) this.returned.add(number);
    }
  }

  protected tooFar(number: number): Wait | undefined {
    if (number - this.marks.lowWater < MAX_TOKENS_AHEAD) return undefined;
    const { replica, round } = this.marks.tokenOf(this.marks.lowWater);
    return { waitsFor: `the token of replica ${replica} in round ${round}: ${MAX_TOKENS_AHEAD} tokens beyond it are issued` };
  }

  /** It is none that is new. */
  protected abstract pass(token: Token): void;
  /** All that are not new any more, from the first one that is not done. */
  protected abstract passed(): Iterable<Token>;

  /** Its holder is gone. */
  giveBack(token: Token): void {
    if (!this.marks.has(token)) this.returned.add(this.marks.numberOf(token));
  }

  /** It is done (and in the marks). */
  done(token: Token): void {
    this.returned.delete(this.marks.numberOf(token));
  }

  protected issue(number: number): Token {
    const token = this.marks.tokenOf(number);
    this.returned.delete(number);
    this.issuedRounds = Math.max(this.issuedRounds, token.round + 1);
    return token;
  }

  /** Why nothing of round `round` is issued at all, or undefined. */
  protected heldBack(round: number): Wait | undefined {
    if (round < this.limitRounds) return undefined;
    if (round >= this.plan.totalRounds) return { waitsFor: 'the last tokens of others: all are issued' };
    return { waitsFor: `all tokens before round ${this.limitRounds} to be done, for a checkpoint` };
  }
}

export class FreeTokens extends TokenSource {
  private cursor: number;

  constructor(plan: TokenPlan, marks: TokenMarks) {
    super(plan, marks);
    this.cursor = marks.lowWater;
  }

  next(): Token | Wait {
    if (this.returned.size > 0) return this.issue(Math.min(...this.returned));
    while (this.cursor < this.plan.totalRounds * this.plan.replicas && this.marks.has(this.marks.tokenOf(this.cursor))) this.cursor++;
    const { round } = this.marks.tokenOf(this.cursor);
    const wait = this.heldBack(round);
    if (wait) return wait;
    return this.tooFar(this.cursor) ?? this.issue(this.cursor++);
  }

  protected override pass(token: Token): void {
    this.cursor = Math.max(this.cursor, this.marks.numberOf(token) + 1);
  }

  protected override *passed(): Iterable<Token> {
    for (let number = this.marks.lowWater; number < this.cursor; number++) yield this.marks.tokenOf(number);
  }
}

export class ClockedTokens extends TokenSource {
  private readonly clocks: number[];
  /** First round of each replica that was never issued. */
  private readonly fresh: number[];

  constructor(
    plan: TokenPlan,
    marks: TokenMarks,
    private readonly bound: number,
  ) {
    super(plan, marks);
    this.clocks = Array.from({ length: plan.replicas }, () => marks.rounds);
    this.fresh = [...this.clocks];
    for (let replica = 0; replica < plan.replicas; replica++) this.wind(replica);
  }

  /** First round of which the replica's token is not done. */
  clock(replica: number): number {
    return this.clocks[replica]!;
  }

  next(replicas: readonly number[]): Token | Wait {
    const first = this.first(replicas);
    if (!first) return { waitsFor: 'a replica: there are more workers than replicas' };
    const wait = this.heldBack(first.round);
    if (wait) return wait;
    const slowest = this.slowest();
    const ahead = first.round - this.clocks[slowest]!;
    if (ahead > this.bound) {
      return {
        waitsFor: `replica ${slowest} to catch up: replica ${first.replica} is ${this.bound} round${this.bound === 1 ? '' : 's'} ahead of it, the staleness bound`,
      };
    }
    const number = this.marks.numberOf(first);
    const far = this.tooFar(number);
    if (far) return far;
    if (this.fresh[first.replica] === first.round) this.fresh[first.replica] = first.round + 1;
    return this.issue(number);
  }

  override done(token: Token): void {
    super.done(token);
    this.wind(token.replica);
    if (token.round > this.clocks[this.slowest()]! + this.bound)
      throw new Error(`the token of replica ${token.replica} in round ${token.round} is done beyond the staleness bound of ${this.bound}`);
  }

  protected override pass({ round, replica }: Token): void {
    this.fresh[replica] = Math.max(this.fresh[replica]!, round + 1);
  }

  protected override *passed(): Iterable<Token> {
    for (const [replica, fresh] of this.fresh.entries())
      for (let round = this.clocks[replica]!; round < fresh; round++) yield { round, replica };
  }

  /** The earliest token that these replicas have to do. */
  private first(replicas: readonly number[]): Token | undefined {
    let best: Token | undefined;
    for (const number of this.returned) {
      const token = this.marks.tokenOf(number);
      if (replicas.includes(token.replica) && (!best || token.round < best.round)) best = token;
    }
    for (const replica of replicas) {
      while (this.fresh[replica]! < this.plan.totalRounds && this.marks.has({ round: this.fresh[replica]!, replica }))
        this.fresh[replica] = this.fresh[replica]! + 1;
      if (!best || this.fresh[replica]! < best.round) best = { round: this.fresh[replica]!, replica };
    }
    return best;
  }

  private slowest(): number {
    let slowest = 0;
    this.clocks.forEach((clock, replica) => {
      if (clock < this.clocks[slowest]!) slowest = replica;
    });
    return slowest;
  }

  private wind(replica: number): void {
    while (this.clocks[replica]! < this.plan.totalRounds && this.marks.has({ round: this.clocks[replica]!, replica }))
      this.clocks[replica] = this.clocks[replica]! + 1;
  }
}
