/** Sums of gradients between processes as a low rank (PowerSGD): two all-reduces of short vectors, one after the other. */
import { LowRankSum } from '@paceline/codecs';
import { AllReducePlan, type AllReduceOptions, type Operation } from '@paceline/collectives';

export interface LowRankExchangeOptions extends Pick<AllReduceOptions, 'members' | 'self' | 'topology' | 'hosts'> {
  /** The trainable ones, which lie from 0 on. */
  readonly variables: readonly { readonly shape: readonly number[]; readonly offset: number; readonly length: number }[];
  /** Elements of the vector. */
  readonly length: number;
  readonly rank: number;
  readonly seed: number;
}

/** Each process sends one sum, of all its replicas: what encodes a sum cannot keep the order of the replicas. */
const planOf = ({ members, self, topology, hosts }: LowRankExchangeOptions, length: number): AllReducePlan =>
  new AllReducePlan({ members, self, replicas: members, length, ...(topology && { topology }), ...(hosts && { hosts }) });

export class LowRankExchange {
  private readonly sum: LowRankSum;
  private readonly plans: readonly [first: AllReducePlan, second: AllReducePlan];

  constructor(options: LowRankExchangeOptions) {
    this.sum = new LowRankSum(options);
    const [first, second] = this.sum.lengths;
    this.plans = [planOf(options, first), planOf(options, second)];
  }

  /** Elements of this process's memory for what others send. */
  static scratchLength(options: LowRankExchangeOptions): number {
    const elements = (length: number): number => AllReducePlan.scratchLength(planOf(options, length).options);
    return new LowRankSum(options).lengths.reduce((sum, length) => sum + elements(length), 0);
  }

  /** @param vector of this process
   *  @param examples that the sum of all is over */
  first(vector: Float32Array, examples: number): Operation {
    const values = this.sum.first(vector, examples);
    return this.plans[0].reduce([values], values);
  }

  /** Once the first is over. */
  second(vector: Float32Array): Operation {
    const values = this.sum.second(vector);
    return this.plans[1].reduce([values], values);
  }

  /** Once the second is over: the vector becomes the sum. */
  finish(vector: Float32Array): void {
    this.sum.finish(vector);
  }
}
