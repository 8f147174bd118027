/** Adds up how far predicted numbers are off, in one pass, and keeps an evenly spread sample of them. */
import { POINTS_MAX } from './report.js';

export class ValueErrors {
  private readonly sample = new EvenSample<readonly [number, number]>(POINTS_MAX);
  private counted = 0;
  private absolute = 0;
  private squared = 0;
  /** Running mean and sum of squared distances of the true values (Welford). */
  private mean = 0;
  private distances = 0;

  add(truth: number, prediction: number): void {
    this.counted++;
    const error = prediction - truth;
    this.absolute += Math.abs(error);
    this.squared += error * error;
    const before = truth - this.mean;
    this.mean += before / this.counted;
    this.distances += before * (truth - this.mean);
    this.sample.add([truth, prediction]);
  }

  get count(): number {
    return this.counted;
  }

  get meanAbsoluteError(): number | null {
    return finite(this.absolute / this.counted);
  }

  get meanSquaredError(): number | null {
    return finite(this.squared / this.counted);
  }

  get rootMeanSquaredError(): number | null {
    return finite(Math.sqrt(this.squared / this.counted));
  }

  get rSquared(): number | null {
    return this.distances > 0 ? finite(1 - this.squared / this.distances) : null;
  }

  points(): (readonly [number, number])[] {
    return this.sample.items().filter((pair) => pair.every(Number.isFinite));
  }
}

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

/**
 * Every n-th of items whose number is not known ahead: when there are twice as many as wanted, every second one is let go of. The same items
 * in the same order leave the same sample.
 */
export class EvenSample<T> {
  private kept: T[] = [];
  private step = 1;
  private seen = 0;

  constructor(private readonly most: number) {}

  add(item: T): void {
    if (this.seen++ % this.step !== 0) return;
    this.kept.push(item);
    if (this.kept.length < 2 * this.most) return;
    this.kept = this.kept.filter((_, i) => i % 2 === 0);
    this.step *= 2;
  }

  /** At most as many as wanted. */
  items(): T[] {
    const every = Math.ceil(this.kept.length / this.most);
    return this.kept.filter((_, i) => i % every === 0);
  }
}

/** The so many greatest by a score; of equal ones the first that came. */
export class Greatest<T> {
  private readonly kept: { readonly score: number; readonly item: T }[] = [];

  constructor(private readonly most: number) {}

  /** @param make is called only for what is kept */
  offer(score: number, make: () => T): void {
    const { kept, most } = this;
    if (kept.length === most && !(score > kept[most - 1]!.score)) return;
    const place = kept.findIndex((each) => score > each.score);
    kept.splice(place < 0 ? kept.length : place, 0, { score, item: make() });
    if (kept.length > most) kept.pop();
  }

  items(): T[] {
    return this.kept.map(({ item }) => item);
  }
}
