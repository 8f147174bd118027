/**
 * What the main thread does when members were lost and the others go on. Replicas are those of the program, whatever processes are left, so each of these
 * gets more of them: every model is laid out anew, for the replicas that are this process's now.
 *
 * | step | what | a member that is lost meanwhile |
 * |---|---|---|
 * | adopt | the group goes on in the next view; who was let in gets what it does not know yet | |
 * | lay out | each model gets new memory, with the state of the source of the view; the old memory stays as it was | the next view begins here again, from the old memory |
 * | settle | who had not completed the operation in hand gets its outcome from the source | as above |
 * | commit | the new memory holds | |
 *
 * So an operation in hand is done by all that are left, or is done again by all.
 *
 * Weights begin with those of the first process, and are its wherever a program sets some. Where these would be lost with it, or would be taken for the
 * outcome of a step, all end instead.
 */
import type { Failure, NextView } from '@paceline/collectives';
import { MemberError } from '../errors.js';
import type { AgreedVersion } from '../threads/agreed-version.js';
import type { FromThread } from '../threads/protocol.js';
import { MembersChanged } from './changed.js';
import type { Breakable, GroupThread } from './group-link.js';

/** A model that is open. */
export interface LaidOut {
  /** Its number. */
  readonly model: number;
  readonly versions: Pick<AgreedVersion, 'pending'>;
  layOut(view: NextView): void;
  commit(isDone: boolean): void;
}

type Failed = Extract<FromThread, { kind: 'failed' }>;

export class ViewChanges {
  private readonly models = new Set<LaidOut>();

  constructor(
    private readonly pool: Breakable,
    private readonly group: GroupThread,
  ) {}

  /** After a step or prediction: whether it has come to nothing. @throws MembersChanged */
  check(): void {
    if (this.group.changed) throw new MembersChanged('a step was left out');
  }

  /** This process was let in: it has what the others have. @throws NotLetIn */
  layOut(view: NextView): void {
    for (const model of this.models) model.layOut(view);
    this.group.settle(this.pool, view, undefined);
    for (const model of this.models) model.commit(false);
  }

  forget(model: LaidOut): void {
    this.models.delete(model);
  }

  /** Opens a model. Whoever has not opened one that others have cannot take it from them. */
  opened<T extends LaidOut>(open: () => T): T {
    for (;;) {
      try {
        const model = open();
        this.models.add(model);
        return model;
      } catch (error) {
        if (!(error instanceof MembersChanged)) throw error;
        if (this.change(undefined, true)) this.end('while this one opened a model, which the others have opened');
      }
    }
  }

  /**
   * An operation of a model, which is done again when members were lost in it.
   * @param outcome where it is done, as others have completed it: what it came to
   */
  done<T>(model: LaidOut, operation: () => T, outcome: (failures: readonly Failed[]) => T = () => undefined as T): T {
    for (;;) {
      try {
        return operation();
      } catch (error) {
        if (!(error instanceof MembersChanged)) throw error;
        const failures = this.change(model);
        if (!failures) continue;
        this.group.course?.counts();
        return outcome(failures.map((failure) => ({ kind: 'failed', ...failure })));
      }
    }
  }

  /** An operation that cannot be done again: its values are those of the replicas that this process had. */
  orEnd<T>(operation: () => T): T {
    try {
      return operation();
    } catch (error) {
      if (!(error instanceof MembersChanged)) throw error;
      this.change(undefined);
      return this.end('while values of replicas were combined, and its values are lost with it');
    }
  }

  /** @throws MemberError once members were lost */
  refuse(what: string): void {
    if (this.group.changed) this.change(undefined);
    if (this.group.lostMembers.length > 0) this.end(`and ${what} keeps values that are lost with it`);
  }

  private end(when: string): never {
    const { lostMembers } = this.group;
    const named = lostMembers.map(({ type, index }) => `${type} ${index}`).join(', ');
    return this.pool.fail(
      new MemberError(lostMembers, `${named || 'a process'} was lost ${when}: start all processes again, from what was saved last`),
    );
  }

  /** @throws MemberError where weights of the first process would be lost, or would be handed out as the outcome of a step before */
  private checkWeights(view: NextView, isFirstLost: boolean, inHand: LaidOut | undefined, opens: boolean): void {
    const { index } = this.group;
    const isDone = view.behind.includes(index);
    const pending = new Set([...this.models].map((model) => model.versions.pending(isDone && model === inHand)));
    if (isFirstLost && (opens || pending.has('begins') || pending.has('takes over')))
      this.end('and had not given the weights of a model to all, which are lost with it');
    pending.delete(undefined);
    if (view.source === index && view.behind.length > 0 && pending.size > 0)
      this.end('after a step that others have not completed, and weights were set since: the outcome of the step is nowhere any more');
  }

  /** @param opens a model is opened @returns what the operation in hand failed with, where it is done */
  private change(inHand: LaidOut | undefined, opens = false): readonly Failure[] | undefined {
    const { pool, group, models } = this;
    for (;;) {
      try {
        const { first } = group;
        const view = group.adopt(pool);
        this.checkWeights(view, !view.members.includes(first), inHand, opens);
        for (const model of models) model.layOut(view);
        const failures = group.settle(pool, view, inHand?.model);
        for (const model of models) model.commit(failures !== undefined && model === inHand);
        return failures;
      } catch (error) {
        if (!(error instanceof MembersChanged)) throw error;
      }
    }
  }
}
