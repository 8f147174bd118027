import { checksumOf } from '@paceline/kernels';
import { describe, expect, it } from 'vitest';
import type { FrameReceiver } from '../connection.js';
import { memoryPair } from './memory.js';
import { PayloadChecksums } from './payload-checksums.js';

describe('PayloadChecksums', () => {
  it('takes a checksum once while any send of the payload is under way, and anew afterwards', () => {
    const checksums = new PayloadChecksums();
    const payload = new Uint8Array([1, 2, 3]);
    checksums.hold(payload);
    const first = checksums.take(payload);
    expect(first).toBe(checksumOf(new Uint8Array([1, 2, 3])));
    payload[0] = 9;
    checksums.hold(payload);
    expect(checksums.take(payload)).toBe(first);
    checksums.release(payload);
    expect(checksums.take(payload)).toBe(first);
    checksums.release(payload);
    expect(() => checksums.take(payload)).toThrow('nobody holds');
    checksums.hold(payload);
    expect(checksums.take(payload)).toBe(checksumOf(new Uint8Array([9, 2, 3])));
  });

  it('is right when a flushed payload is changed and sent again, to several peers', async () => {
    const receivers = [0, 1].map(() => {
      const [near, far] = memoryPair({ checksum: true });
      const seen: number[] = [];
      const ignore: FrameReceiver = {
        payloadFor: (header) => new Uint8Array(header.length),
        data: () => undefined,
        message: () => undefined,
        closed: () => undefined,
      };
      near.setReceiver(ignore);
      far.setReceiver({ ...ignore, data: (_header, bytes) => seen.push(bytes[0]!) });
      return { near, seen };
    });
    const payload = new Uint8Array(50_000);
    const fields = { type: 2, codec: 0, attempt: 0, term: 0, view: 0, round: 0, nodeLo: 0, nodeHi: 1, chunk: 0 } as const;
    for (let value = 1; value <= 3; value++) {
      payload.fill(value);
      await Promise.all(receivers.map(({ near }) => new Promise<void>((resolve) => near.sendData(fields, payload, resolve))));
    }
    for (const { near, seen } of receivers) {
      expect(near.isOpen).toBe(true);
      expect(seen).toEqual([1, 2, 3]);
    }
  });
});
