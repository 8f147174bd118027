/**
 * Streaming DiLoCo (Douillard et al., arXiv:2501.18512): replicas that train alone exchange a part of the model at a time, its fragment, and go on with their steps
 * while it is under way:
 *
 *     local steps ... | fragment 0 is sent | `delay` steps | fragment 0 is taken, mixed with what the replica has come to | ... | fragment 1 is sent | ...
 *
 * Every fragment is exchanged once in `steps` local steps, in even distances. Layers go to fragments in turn, so that each has early and late ones (the strided
 * pattern of the paper).
 */
import type { Layout } from '@paceline/learning';
import type { Breakable, GroupThread } from '../members/group-link.js';
import type { ToThread } from './protocol.js';
import type { Range } from './ranges.js';

export interface FragmentRange extends Range {
  /** Where it lies among the elements of the fragment, one behind the other. */
  readonly packed: number;
}

export interface Fragment {
  readonly ranges: readonly FragmentRange[];
  /** Elements. */
  readonly length: number;
}

const layerOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')));

/** Layers that have weights or state. */
export const layersOf = ({ variables }: Pick<Layout, 'variables'>): string[] => [...new Set(variables.map(({ path }) => layerOf(path)))];

/** @param count at most as many as there are layers */
export function fragmentsOf(layout: Pick<Layout, 'variables'>, count: number): Fragment[] {
  const layers = layersOf(layout);
  return Array.from({ length: count }, (_, fragment) => {
    let packed = 0;
    const ranges = layout.variables
      .filter(({ path }) => layers.indexOf(layerOf(path)) % count === fragment)
      .map(({ offset, length }): FragmentRange => {
        packed += length;
        return { offset, length, packed: packed - length };
      });
    return { ranges, length: packed };
  });
}

/** What of these parts lies in the fragment. */
export function within<T extends Range>(parts: readonly T[], { ranges }: Fragment): (T & FragmentRange)[] {
  return parts.flatMap((part) =>
    ranges.flatMap((range) => {
      const [from, to] = [Math.max(part.offset, range.offset), Math.min(part.offset + part.length, range.offset + range.length)];
      return from < to ? [Object.assign({}, part, { offset: from, length: to - from, packed: range.packed + from - range.offset })] : [];
    }),
  );
}

export interface FragmentRules {
  /** Local steps between two exchanges of a fragment. */
  readonly steps: number;
  readonly fragments: number;
  /** Local steps between sending a fragment and taking it; at most as many as lie between two exchanges. */
  readonly delay: number;
  /** The part of its own values that a replica keeps when it takes a fragment. */
  readonly mixing: number;
}

/** How an exchange goes. One is under way at a time. */
export interface FragmentActs {
  begin(fragment: number): void;
  /** Waits for it. */
  take(fragment: number, mixing: number): void;
}

/** Which fragment is exchanged when; all processes come to the same. */
export class FragmentCourse {
  private steps = 0;
  /** Fragments that replicas have moved since all of them had its common values. */
  private readonly moved: boolean[];
  private underWay: { readonly fragment: number; readonly due: number } | undefined;

  constructor(
    private readonly rules: FragmentRules,
    private readonly acts: FragmentActs,
  ) {
    this.moved = Array.from({ length: rules.fragments }, () => false);
  }

  /** All replicas have taken a local step. */
  stepped(): void {
    const { steps, fragments, delay } = this.rules;
    this.steps++;
    this.moved.fill(true);
    if (this.underWay?.due === this.steps) this.take();
    const at = this.steps % steps;
    const fragment = this.moved.findIndex((_, i) => Math.floor(((i + 1) * steps) / fragments) % steps === at);
    if (fragment < 0) return;
    this.begin(fragment, this.steps + delay);
    if (delay === 0) this.take(0);
  }

  /** Somebody looks: all fragments become common, and all replicas have them. */
  flush(): void {
    this.take();
    for (const [fragment, hasMoved] of this.moved.entries()) {
      if (!hasMoved) continue;
      this.begin(fragment, this.steps);
      this.take(0);
    }
    this.steps = 0;
  }

  private begin(fragment: number, due: number): void {
    this.acts.begin(fragment);
    this.underWay = { fragment, due };
  }

  private take(mixing = this.rules.mixing): void {
    if (!this.underWay) return;
    const { fragment } = this.underWay;
    this.underWay = undefined;
    this.acts.take(fragment, mixing);
    this.moved[fragment] = mixing > 0;
  }
}

/** What exchanges fragments of a model: the threads of this process, and the other processes. */
interface Exchanging {
  readonly model: number;
  readonly pool: Breakable;
  readonly group: Pick<GroupThread, 'beginFragment' | 'awaitFragment'> | undefined;
  readonly lastStep: number;
}

export function fragmentCourse(
  rules: FragmentRules,
  of: Exchanging,
  ask: (message: Extract<ToThread, { kind: 'fragment' }>) => void,
): FragmentCourse {
  const { model, pool } = of;
  const exchange = (fragment: number, part: 'collect' | 'take', mixing = 0): void =>
    ask({ kind: 'fragment', model, fragment, part, mixing });
  return new FragmentCourse(rules, {
    begin: (fragment) => {
      exchange(fragment, 'collect');
      of.group?.beginFragment(pool, model, fragment, of.lastStep);
    },
    take: (fragment, mixing) => {
      of.group?.awaitFragment(pool);
      exchange(fragment, 'take', mixing);
    },
  });
}
