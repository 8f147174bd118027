/** The slow link of a run whose spec has one. */
import { Link, processClock } from '@paceline/exchange';
import { linkOf } from '@paceline/runtime';
import type { RunSpec } from '@paceline/spec';

/** What all connections of this worker in the run share; undefined: that of the process, if it has one. */
export function linkOfRun({ link }: Pick<RunSpec, 'link'>): Link | undefined {
  const speed = link === undefined ? undefined : linkOf(link);
  return speed && new Link(speed, processClock);
}
