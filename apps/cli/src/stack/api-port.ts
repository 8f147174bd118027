/** The port of the api: the one that was asked for, or the next free one where nobody asked for any. */
import { isPortFree, UserError } from '@paceline/runtime';
import type { Terminal } from '../terminal/terminal.js';

const PORTS_TRIED = 100;

/** @param mayMove nobody has asked for this very port @throws UserError PORT_TAKEN */
export async function portFor(
  { port, host }: { readonly port: number; readonly host: string },
  mayMove: boolean,
  terminal: Terminal,
): Promise<number> {
  if (port === 0 || (await isPortFree(port, host))) return port;
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

async function freePortAfter(port: number, host: string): Promise<number | undefined> {
  for (let next = port + 1; next <= Math.min(port + PORTS_TRIED, 65_535); next++) if (await isPortFree(next, host)) return next;
  return undefined;
}
