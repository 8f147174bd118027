/**
 * A process that was started again takes part in a training that went on without it: it runs its program from the beginning, and what all processes
 * have done together meanwhile it does not do again. Each operation has a name, and the others keep a journal of them (journal.ts), with what `fit`
 * made of each: the losses and metrics of every batch and every evaluation.
 *
 * | state | an operation | ends |
 * |---|---|---|
 * | replays | must have the name of the next line, and comes to what that says | lines are used up: asks for more; when the last answer was short, to be let in |
 * | is let in | the same, with the last lines; the others wait at the next operation | lines are used up: the models are laid out, with the state of the source |
 * | takes part | is done by all, and is a line of the journal | |
 *
 * So `fit` gets to the batch where the others are as it would have, with all callbacks and the whole History. Weights between are nowhere any more: who reads
 * some before this process takes part gets an error. Where an operation has another name the programs differ: this process ends, and the others have
 * done nothing for it yet.
 */
import type { NextView } from '@paceline/collectives';
import { MemberError } from '../errors.js';
import type { Course } from '../exchange.js';
import type { ReplicaArray } from '../replicas/per-replica.js';
import { MembersChanged, NotLetIn } from './changed.js';
import type { Told } from './journal.js';

export interface Entry {
  readonly what: string;
  readonly values: Uint8Array | undefined;
  /** What replicas answered, where nothing says yet what followed from it. */
  readonly outputs: readonly Float32Array[] | undefined;
}

const base64Of = ({ buffer, byteOffset, byteLength }: Uint8Array | Float32Array): string =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength).toString('base64');
const bytesIn = (text: string): Uint8Array<ArrayBuffer> => new Uint8Array(Buffer.from(text, 'base64'));

const textOf = (what: string, values: Uint8Array | undefined): string => JSON.stringify(values ? [what, base64Of(values)] : [what]);

function entryOf(line: string): Entry {
  const [what, values, outputs] = JSON.parse(line) as [string, (string | null)?, string[]?];
  return {
    what,
    values: values == null ? undefined : bytesIn(values),
    outputs: outputs?.map((text) => new Float32Array(bytesIn(text).buffer)),
  };
}

/** Arrays of replicas as bytes. */
export const bytesOfArrays = (arrays: readonly ReplicaArray[]): Uint8Array =>
  new Uint8Array(Buffer.from(JSON.stringify(arrays.map(({ shape, values }) => [shape, base64Of(values)]))));

export const arraysIn = (bytes: Uint8Array): ReplicaArray[] =>
  (JSON.parse(Buffer.from(bytes).toString()) as [number[], string][]).map(([shape, values]) => ({
    shape,
    values: new Float32Array(bytesIn(values).buffer),
  }));

/** An answer of fewer lines says that this process is about where the others are. */
const FEW_LINES = 200;
/** Each time costs the others the operation in hand. */
const MOST_REFUSALS = 5;

/** What of the group it needs. */
export interface CourseGroup {
  readonly ownTask: { readonly type: string; readonly index: number };
  /** This process was started again, and the others go on without it. It waits until all have come together. */
  isNew(pool: Failing): boolean;
  /** A line of the journal. @param settles what replicas have answered is not needed any more */
  note(line: string, outputs?: readonly Float32Array[], settles?: boolean): void;
  closeJournal(why: string): void;
  /** Lines of the others that follow those that this process knows. */
  more(pool: Failing, known: number): ToldLines;
  /** The others let this process in: the last lines, and the view that it goes on in. @throws NotLetIn */
  enter(pool: Failing, known: number): ToldLines;
}

/** Lines of the journal; with the last ones the view that this process goes on in. */
export interface ToldLines extends Told {
  readonly view: NextView | undefined;
}

/** What cannot go on after an error. */
export interface Failing {
  fail(error: Error): never;
}

/** Lays the models out for a view that has this process. */
export type LayOut = (view: NextView) => void;

export class MemberCourse implements Course {
  private state: 'unknown' | 'replays' | 'takes part' = 'unknown';
  private entries: Entry[] = [];
  /** Lines so far. */
  private known = 0;
  private lastCount = Infinity;
  private view: NextView | undefined;
  private left: string | undefined;
  private refusals = 0;

  constructor(
    private readonly pool: Failing,
    private readonly group: CourseGroup,
    private readonly layOut: LayOut,
  ) {}

  get isCatchingUp(): boolean {
    if (this.state === 'unknown') this.state = this.group.isNew(this.pool) ? 'replays' : 'takes part';
    return this.state === 'replays';
  }

  /**
   * @param live does it, with all others
   * @param again what it has come to, where the others did it without this process
   */
  operation<T>(
    what: string,
    live: () => T,
    again: (entry: Entry) => T,
    of: { readonly outputs?: (result: T) => readonly Float32Array[]; readonly values?: (result: T) => Uint8Array } = {},
  ): T {
    const entry = this.next();
    if (entry) {
      const result = again(this.checked(entry, what));
      this.group.note(textOf(what, entry.values), entry.outputs);
      return result;
    }
    const result = this.tried(what, live);
    this.group.note(textOf(what, of.values?.(result)), of.outputs?.(result));
    return result;
  }

  private tried<T>(what: string, live: () => T): T {
    try {
      this.left = undefined;
      return live();
    } catch (error) {
      if (error instanceof MembersChanged) this.left = what;
      throw error;
    }
  }

  /** The operation that was left when members changed has been completed by others: it is not tried again. */
  counts(): void {
    if (this.left !== undefined) this.group.note(textOf(this.left, undefined));
    this.left = undefined;
  }

  value(what: string, compute: () => Uint8Array): Uint8Array {
    const entry = this.next();
    const values = entry ? (this.checked(entry, what).values ?? new Uint8Array(0)) : compute();
    this.group.note(textOf(what, values), undefined, true);
    return values;
  }

  same(what: string): void {
    const entry = this.next();
    if (entry) this.checked(entry, what);
    this.group.note(textOf(what, undefined));
  }

  close(why: string): void {
    if (this.isCatchingUp) this.fail(`${why} cannot be done again by a process that was started again`);
    this.group.closeJournal(why);
  }

  refuseReading(what: string): never {
    return this.fail(
      `${what} of a moment at which this process was not there was read; the others keep what fit came to, and no weights of earlier steps. Ask strategy.isCatchingUp in a callback, and read nothing while it is true`,
    );
  }

  private fail(why: string): never {
    const { ownTask } = this.group;
    return this.pool.fail(new MemberError([ownTask], `${ownTask.type} ${ownTask.index} cannot take part again: ${why}`));
  }

  private checked(entry: Entry, what: string): Entry {
    if (entry.what === what) return entry;
    return this.fail(
      `it is at "${what}", and the others were at "${entry.what}": start it with the same program, data and arguments. The others train on`,
    );
  }

  /** @returns undefined where this process takes part */
  private next(): Entry | undefined {
    while (this.isCatchingUp) {
      const entry = this.entries.shift();
      if (entry) return entry;
      try {
        this.further();
      } catch (error) {
        if (!(error instanceof NotLetIn)) throw error;
        if (++this.refusals === MOST_REFUSALS)
          this.fail(`${MOST_REFUSALS} times the others went on without it before it had their state: ${error.message}`);
        this.view = undefined;
        this.lastCount = Infinity;
      }
    }
    return undefined;
  }

  /** More lines; or this process takes part. */
  private further(): void {
    const { view, pool, group } = this;
    if (view) {
      this.layOut(view);
      this.state = 'takes part';
      return;
    }
    const told = this.lastCount > FEW_LINES ? group.more(pool, this.known) : group.enter(pool, this.known);
    if (told.closed !== undefined) this.fail(`${told.closed}. Start all processes again, from what was saved last`);
    this.view = told.view;
    this.known += told.lines.length;
    this.lastCount = told.lines.length;
    this.entries = told.lines.map(entryOf);
  }
}
