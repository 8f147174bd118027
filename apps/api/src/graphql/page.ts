/** The arguments that pages of lists have: where to begin, where to end, how many. */
import { Int } from '@nestjs/graphql';

export const FIRST = 'So many from the beginning, at most 100.';
export const AFTER = { nullable: true, description: 'Begin behind this cursor.' };
export const LAST = { type: () => Int, nullable: true, description: 'So many from the end, at most 100.' };
export const BEFORE = { nullable: true, description: 'End in front of this cursor.' };
