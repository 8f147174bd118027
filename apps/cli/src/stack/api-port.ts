/** The port of the api: the one that was asked for, or the next free one where nobody asked for any. */
import { isPortFree, UserError, whyNotListening } from '@paceline/runtime';
import type { Terminal } from '../terminal/terminal.js';

const PORTS_TRIED = 100;

/** @param mayMove nobody has asked for this very port @throws UserError PORT_TAKEN, NO_PERMISSION, BAD_ADDRESS */
export async function portFor(
  { port, host }: { readonly port: number; readonly host: string },
  mayMove: boolean,
  terminal: Terminal,
): Promise<number> {
  const problem = await whyNotListening(port, host);
  if (!problem) return port;
  if (problem.code !== 'EADDRINUSE') throw cannotListen(port, host, problem);
  const free = await freePortAfter(port, host);
  if (!mayMove || free === undefined)
    throw new UserError('PORT_TAKEN', `Port ${port} for the api is taken by another program.`, {
      hint:
        free === undefined
          ? 'Choose another one: paceline up --port 0.'
          : `Choose another one: paceline up --port ${free} (it is free; 0 takes any free one).`,
      exit: 'configuration',
    });
  terminal.note(`Port ${port} is taken by another program; the api takes ${free}.`);
  return free;
}

function cannotListen(port: number, host: string, problem: NodeJS.ErrnoException): UserError {
  if (problem.code === 'EACCES')
    return new UserError('NO_PERMISSION', `You may not listen on port ${port} of ${host}.`, {
      hint: 'Choose a port from 1024 on: paceline up --port 4100.',
      exit: 'configuration',
    });
  return new UserError(
    'BAD_ADDRESS',
    `The api cannot listen on ${host} (${problem.code ?? problem.message}): that is no address of this machine.`,
    {
      hint: 'Give one of its own with --host; 0.0.0.0 is all of them.',
      exit: 'configuration',
    },
  );
}

async function freePortAfter(port: number, host: string): Promise<number | undefined> {
  for (let next = port + 1; next <= Math.min(port + PORTS_TRIED, 65_535); next++) if (await isPortFree(next, host)) return next;
  return undefined;
}
