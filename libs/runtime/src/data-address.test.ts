import { describe, expect, it } from 'vitest';
import { dataAddress, type HostNetwork } from './data-address.js';

const network: HostNetwork = {
  resolve: async (name) => (name === 'ps-data' ? ['172.20.0.3', '172.20.0.4'] : []),
  own: () => ['127.0.0.1', '172.19.0.7', '172.20.0.4'],
};

describe('the address of a server', () => {
  it('is bound and told alike when only the host is set', async () => {
    const several = '10.0.0.4,training.example.org';
    expect(await dataAddress(several, '0.0.0.0', network)).toEqual({ bind: '0.0.0.0', advertise: several });
    await expect(dataAddress(several, undefined, network)).rejects.toMatchObject({ code: 'DATA_BIND_NEEDED' });
    expect(await dataAddress('ps-1', undefined, network)).toEqual({ bind: 'ps-1', advertise: 'ps-1' });
  });

  it('is bound elsewhere than it is told', async () => {
    expect(await dataAddress('training.example.org', '0.0.0.0', network)).toEqual({ bind: '0.0.0.0', advertise: 'training.example.org' });
  });

  it('is its own among those of a name that several servers share', async () => {
    expect(await dataAddress('own:ps-data', undefined, network)).toEqual({ bind: '172.20.0.4', advertise: '172.20.0.4' });
    expect(await dataAddress('own:ps-data', '0.0.0.0', network)).toEqual({ bind: '0.0.0.0', advertise: '172.20.0.4' });
  });

  it('is refused, with what the name resolves to, when none of them is its own', async () => {
    const elsewhere: HostNetwork = { ...network, own: () => ['10.0.0.1'] };
    await expect(dataAddress('own:ps-data', undefined, elsewhere)).rejects.toThrow(/172\.20\.0\.3, 172\.20\.0\.4, none of this machine/);
    await expect(dataAddress('own:nobody', undefined, network)).rejects.toMatchObject({ code: 'DATA_HOST_NOT_OWN' });
  });
});
