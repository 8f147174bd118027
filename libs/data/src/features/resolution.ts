/** What is wrong with the features of a spec is collected, each with its path; columns are found by name and kind. */
import {
  closest,
  sortedVocabulary,
  type Column,
  type DatasetManifest,
  type Encoder,
  type RowsOfExample,
  type HeldOut,
  type SpecIssue,
  type SplitName,
} from '@paceline/spec';

export type ColumnOf<K extends Column['kind']> = Extract<Column, { kind: K }>;

/** An encoder with the shape of what it makes of one row. */
export interface ResolvedEncoder {
  readonly encoder: Encoder;
  readonly shape: readonly number[];
}

/** Rows that make an example, without windows: the row itself, with windows the last row that inputs see. */
export const rowAt = (first: number): RowsOfExample => ({ first, step: 1, count: 1 });

const NAMES_SHOWN = 20;
const MAX_ISSUES = 20;
/** A manifest may have 100,000 names, and a spec as many wrong ones: what is guessed for a person stays cheap. */
const NAMES_GUESSED = 3;
const CANDIDATES_MAX = 2_000;

export class Resolution {
  readonly issues: SpecIssue[] = [];
  /** Known before inputs and targets are resolved: what this split alone has is found now, and not when the run is measured. */
  evaluateOn: SplitName = 'train';
  private readonly columns: ReadonlyMap<string, Column>;
  private readonly sorted = new Map<string, string[]>();
  private readonly trained = new Map<string, string[]>();
  private guesses = 0;

  constructor(readonly manifest: DatasetManifest) {
    this.columns = new Map(manifest.columns.map((column) => [column.name, column]));
  }

  /** More issues are not kept: whoever walks a list may end. */
  get isFull(): boolean {
    return this.issues.length >= MAX_ISSUES;
  }

  /** @returns undefined, so that a resolver can end with it */
  issue(path: string, message: string): undefined {
    if (!this.isFull) this.issues.push({ path, message });
    return undefined;
  }

  /** The name that was probably meant: for the first few wrong ones, among the first candidates. */
  guess(name: string, candidates: readonly string[]): string | undefined {
    return this.isFull || ++this.guesses > NAMES_GUESSED ? undefined : closest(name, candidates.slice(0, CANDIDATES_MAX));
  }

  /** The vocabulary in the order of the classes, sorted once however many features name it. */
  sortedVocabularyOf({ name, vocabulary }: ColumnOf<'category'>): string[] {
    let sorted = this.sorted.get(name);
    if (sorted === undefined) this.sorted.set(name, (sorted = sortedVocabulary(vocabulary)));
    return sorted;
  }

  /** A name that is in no row of the training split has nothing to learn from: as an input it counts as unknown. */
  trainedVocabularyOf(column: ColumnOf<'category'>): string[] {
    let names = this.trained.get(column.name);
    if (names === undefined) {
      const trained = new Set(column.vocabulary.filter((_, code) => (column.statistics.counts[code] ?? 0) > 0));
      names = this.sortedVocabularyOf(column).filter((known) => trained.has(known));
      this.trained.set(column.name, names);
    }
    return names;
  }

  column<K extends Column['kind']>(path: string, name: string, kinds: readonly K[]): ColumnOf<K> | undefined {
    const column = this.columns.get(name);
    if (!column && this.isFull) return undefined;
    if (!column) return this.issue(path, `names ${JSON.stringify(name)}, which is no column of the dataset${this.meant(name)}`);
    if (kinds.includes(column.kind as K)) return column as ColumnOf<K>;
    return this.issue(
      path,
      `${JSON.stringify(name)} is a column of kind ${column.kind}, and this takes ${kinds.join(' or ')}; ${this.instead(column)}`,
    );
  }

  /** What the split that the run is measured on has, and the training split has not. */
  heldOut(column: Column): HeldOut {
    const { evaluateOn } = this;
    return (evaluateOn !== 'train' && 'heldOut' in column && column.heldOut?.[evaluateOn]) || {};
  }

  /** @param what is not there: `no "price", and a target needs one` @returns whether a value is missing where none may be */
  isMissing(path: string, column: ColumnOf<'number' | 'category' | 'array'>, what: string): boolean {
    const split = column.statistics.missing > 0 ? 'training' : this.evaluateOn;
    const missing = column.statistics.missing || this.heldOut(column).missing;
    if (!missing) return false;
    this.issue(path, `${missing} rows of the ${split} split have ${what}: import the data again and drop rows without it`);
    return true;
  }

  /** The columns, for a message. */
  columnNames(): string {
    const names = this.manifest.columns.slice(0, NAMES_SHOWN).map(({ name, kind }) => `${name} (${kind})`);
    const more = this.manifest.columns.length - names.length;
    return names.join(', ') + (more > 0 ? ` and ${more} more` : '');
  }

  private meant(name: string): string {
    const candidates = this.manifest.columns.slice(0, CANDIDATES_MAX).map((column) => column.name);
    const near = this.guess(name, candidates);
    return near === undefined ? `; it has ${this.columnNames()}` : `; did you mean ${near}?`;
  }

  private instead({ kind, name }: Column): string {
    const column = JSON.stringify(name);
    switch (kind) {
      case 'number':
        return `write {kind: number, columns: [${column}]}, or import it as a category`;
      case 'category':
        return `write {kind: category, column: ${column}} as an input, {kind: class, column: ${column}} as a target`;
      case 'image':
        return `write {kind: image, column: ${column}, height: 224, width: 224} as an input`;
      case 'text':
        return `write {kind: text, column: ${column}, length: 128} as an input`;
      case 'sequence':
        return `write {kind: sequence, column: ${column}, length: 100}`;
      case 'array':
        return `write {kind: array, column: ${column}}`;
    }
  }
}
