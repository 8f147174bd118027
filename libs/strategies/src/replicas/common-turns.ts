/** Processes that have a dataset each take as many steps: as long as any of them has a batch left, the others take part with batches without rows. */
import * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError } from '../errors.js';
import type { Share } from './combine.js';
import { decode, encode, mapLeaves, type Encoded } from './per-replica.js';

/** The turns of one pass over a dataset. */
export class CommonTurns {
  private turns = 0;
  /** What a batch is, as JSON of one without rows; empty where there is none such. */
  private form = '';

  constructor(
    private readonly share: Share,
    /** From 1 for each dataset. */
    private readonly pass: number,
  ) {}

  /**
   * Asks all processes.
   * @param own the first batch of this process, undefined where it has none left
   * @returns whether any process has one
   */
  goOn(own: unknown): boolean {
    const isFirst = this.turns++ === 0;
    if (isFirst && own !== undefined) this.form = formOf(own);
    // Only the first turn tells the form: who has no batch then never has one.
    const said = Float32Array.from([own === undefined ? 0 : 1, ...(isFirst ? Buffer.from(this.form) : [])]);
    const what = `whether there is a batch ${this.turns} in pass ${this.pass} over a dataset of distributeDatasetsFromFunction`;
    const all = this.share(what, [{ shape: [said.length], values: said }]).map(({ values }) => values);
    if (this.form === '') this.form = Buffer.from(all.find(({ length }) => length > 1)?.subarray(1) ?? []).toString();
    const goesOn = all.some(([has]) => has === 1);
    // All processes say so, not the one alone that would have to make it.
    if (goesOn && !all.every(([has]) => has === 1)) this.requireForm();
    return goesOn;
  }

  /** A batch without rows. Its tensors are new. */
  empty(): unknown {
    this.requireForm();
    return decode(JSON.parse(this.form) as Encoded);
  }

  private requireForm(): void {
    if (this.form === '')
      throw new ArgumentError(
        'distributeDatasetsFromFunction: a replica has no batch left, and there is no batch without rows: make batches of tensors with a row for each example, or give all replicas as many batches',
      );
  }
}

function formOf(batch: unknown): string {
  let isRows = true;
  mapLeaves(batch, (leaf) => void (isRows &&= leaf instanceof tfc.Tensor && leaf.rank > 0));
  if (!isRows) return '';
  const none = mapLeaves(batch, (leaf) => tfc.slice(leaf as tfc.Tensor, 0, 0));
  const encoded = encode(none, undefined, 'batch');
  mapLeaves(none, (leaf) => (leaf as tfc.Tensor).dispose());
  return JSON.stringify(encoded, (_, value: unknown) => (ArrayBuffer.isView(value) ? [] : value));
}
