/** The arguments that pages of lists have: where to begin, where to end, how many. */
import { Int } from '@nestjs/graphql';

export const FIRST = 'How many from the beginning of the list, at most 100.';
export const AFTER = { nullable: true, description: 'Begin behind this cursor.' };
export const LAST = { type: () => Int, nullable: true, description: 'How many from the end of the list, at most 100.' };
export const BEFORE = { nullable: true, description: 'End in front of this cursor.' };
