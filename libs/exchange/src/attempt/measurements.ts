/** Has the live members measure examples, once at a time (evaluation.ts): for a validation while training, and at the end. */
import type { Message, MessageOf } from '@paceline/protocol';
import type { Attempt } from './attempt.js';
import { Evaluation, type MeasuredRange } from './evaluation.js';
import { givenWork } from './membership.js';
import { misfitOf, type Measures } from './measures.js';

/** The part of the coordinator that wants a measurement. */
export interface Measurer {
  /** Measures of a block have come. @param values when they were the last */
  measured(generation: number, values: Measures | undefined): void;
}

export class Measurements {
  private present: { readonly evaluation: Evaluation; readonly measurer: Measurer } | undefined;

  constructor(private readonly attempt: Attempt) {}

  get isUnderWay(): boolean {
    return this.present !== undefined;
  }

  begin(generation: number, range: MeasuredRange, measurer: Measurer): void {
    this.present = { evaluation: new Evaluation(generation, range, this.attempt.options.measured), measurer };
  }

  /** The member has blocks to measure. */
  owes(id: string): boolean {
    return this.present?.evaluation.owes(id) ?? false;
  }

  /** Hands blocks without a holder to the live members. */
  offer(): void {
    this.present?.evaluation.offer(this.attempt.members.live(), this.send);
  }

  /** What the member has not measured goes to the live ones. */
  withdraw(id: string): void {
    this.present?.evaluation.withdraw(id, this.attempt.members.live(), this.send);
  }

  isOf(generation: number): boolean {
    return this.present?.evaluation.generation === generation;
  }

  /** Why what a worker says of a block cannot be; undefined where it can. */
  misfitOf(message: MessageOf<'evaluated'>): string | undefined {
    const what = `the evaluation examples ${message.from} to ${message.to}`;
    return misfitOf(message, this.attempt.options.measured, message.to - message.from, what);
  }

  /** A block of the present one is measured. */
  add(message: MessageOf<'evaluated'>): void {
    const { evaluation, measurer } = this.present!;
    const values = evaluation.done(message);
    if (values) this.present = undefined;
    measurer.measured(evaluation.generation, values);
  }

  private readonly send = (id: string, message: Message): void => {
    const { members, options } = this.attempt;
    const member = members.get(id)!;
    givenWork(member, options.now());
    member.connection.sendMessage(message, this.attempt.numbers());
  };
}
