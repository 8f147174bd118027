/**
 * Where a server listens and what it tells workers, which are two things: behind a published port or in a container it listens
 * on 0.0.0.0 and is reached by a name. Servers that share one name, as the scaled containers of a service do, tell the one among its
 * addresses that is their own (`own:NAME`); they listen there too, so that training traffic stays on that network.
 */
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { UserError } from './user-error.js';

const OWN = 'own:';

export interface DataAddress {
  /** Address to listen on. */
  readonly bind: string;
  /** Name or address that workers and other servers connect to; several with commas between them are tried in their order. */
  readonly advertise: string;
}

/** What is asked of this machine's network. It is an argument, so that tests can answer. */
export interface HostNetwork {
  /** All addresses of a name; none when it has no address. */
  resolve(name: string): Promise<readonly string[]>;
  /** Addresses of this machine. */
  own(): readonly string[];
}

export const hostNetwork: HostNetwork = {
  resolve: async (name) => {
    try {
      return (await lookup(name, { all: true })).map(({ address }) => address);
    } catch (error) {
      if (['ENOTFOUND', 'EAI_AGAIN', 'ENODATA'].includes((error as NodeJS.ErrnoException).code ?? '')) return [];
      throw error;
    }
  },
  own: () => Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map(({ address }) => address)),
};

/**
 * @param host PACELINE_DATA_HOST
 * @param bind PACELINE_DATA_BIND
 * @throws UserError DATA_BIND_NEEDED with several hosts and no address to listen on; DATA_HOST_NOT_OWN when the name after `own:` resolves to no address of this machine
 */
export async function dataAddress(host: string, bind: string | undefined, network: HostNetwork = hostNetwork): Promise<DataAddress> {
  if (host.includes(',')) {
    if (bind !== undefined && !host.includes(OWN)) return { bind, advertise: host };
    throw new UserError('DATA_BIND_NEEDED', `PACELINE_DATA_HOST names several hosts: ${host}.`, {
      exit: 'configuration',
      hint: 'Set PACELINE_DATA_BIND to the one address to listen on, 0.0.0.0 for all, and write every host without own: in front of it.',
    });
  }
  if (!host.startsWith(OWN)) return { bind: bind ?? host, advertise: host };
  const name = host.slice(OWN.length);
  const [resolved, own] = [await network.resolve(name), new Set(network.own())];
  const advertise = resolved.find((address) => own.has(address));
  if (advertise === undefined) {
    const found = resolved.length === 0 ? 'no address' : resolved.slice(0, 8).join(', ');
    throw new UserError('DATA_HOST_NOT_OWN', `PACELINE_DATA_HOST is ${host}, but ${name} resolves to ${found}, none of this machine.`, {
      exit: 'configuration',
      hint: 'Name a host that resolves to this machine, or set PACELINE_DATA_HOST to its address and PACELINE_DATA_BIND to 0.0.0.0.',
    });
  }
  return { bind: bind ?? advertise, advertise };
}
