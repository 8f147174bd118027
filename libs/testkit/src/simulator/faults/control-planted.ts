/** Planted mistakes of the control plane: put into what an api writes into Redis, and to be found within so many seeds. */
import { cancelField, controlFor } from '@paceline/control-plane';
import type { PlantedBug } from './planted.js';

export const PLANTED_CONTROL: readonly PlantedBug[] = [
  {
    name: 'job ids of a process',
    mistake: 'the outbox sends a row under an id that names the api: after a restart in between the same row is another job',
    shownBy: ['outbox'],
    withinSeeds: 10,
    kinds: ['kill an api'],
    plant: { outbox: (jobs, api) => jobs.map((job) => ({ ...job, jobId: `${job.jobId}-${api}` })) },
  },
  {
    name: 'control hash without a fence',
    mistake: 'the end of an attempt is written into the control hash for whichever attempt reads it: the next one is cancelled too',
    shownBy: ['I9'],
    withinSeeds: 10,
    seed: 2,
    kinds: ['kill a server'],
    plant: {
      control: (fields, attempt) => {
        const isEnd = fields.action !== undefined && controlFor(fields.action, attempt) === 'cancel';
        return isEnd ? { ...fields, action: cancelField(attempt + 1) } : fields;
      },
    },
  },
  {
    name: 'acknowledged before it is stored',
    mistake: 'a journal is told that the entry after the last one is stored too: when it is lost on its way, nobody has it',
    shownBy: ['I4'],
    withinSeeds: 10,
    kinds: ['restart Redis', 'flush Redis', 'PostgreSQL away'],
    plant: {
      control: (fields) =>
        Object.fromEntries(
          Object.entries(fields).map(([name, value]) => [
            name,
            /^ack\d+$/u.test(name) ? value.replace(/^\d+/u, (n: string) => `${Number(n) + 1}`) : value,
          ]),
        ),
    },
  },
];
