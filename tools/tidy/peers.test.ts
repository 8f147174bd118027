/** Peers of the benches are programs that somebody else has installed: when one fails, the error has to say why. The scripts here are of the shell. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { peerFigure } from '../../bench/peers.mjs';

const folder = mkdtempSync(join(tmpdir(), 'paceline-peers-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function figure(script: string, { python = '/bin/sh', deadlineMs }: { python?: string; deadlineMs?: number } = {}): Promise<number> {
  writeFileSync(join(folder, 'peer.py'), script);
  return peerFigure({ python, folder }, 'peer', ['wire', 2], 'GB/s', deadlineMs);
}

test('a figure counts, also where the peer breaks after it', async () => {
  expect(await figure('echo 1.5 GB/s')).toBe(1.5);
  expect(await figure('echo 1.5 GB/s; kill -ABRT $$')).toBe(1.5);
});

test.each<[string, string, { python?: string; deadlineMs?: number }, RegExp]>([
  ['no Python', '', { python: '/nowhere/python' }, /\/nowhere\/python or the folder .* does not exist. Give --peer-python/],
  ['a bad exit', 'echo no module torch >&2; exit 3', {}, /it exited with 3; its output ends with: no module torch/],
  ['a signal', 'kill -ABRT $$', {}, /it ended by SIGABRT/],
  ['no figure', 'echo 1.5 apples', {}, /it ended in order and printed none; its output ends with: 1.5 apples/],
  ['a figure, and then no end', 'echo 1.5 GB/s; exec sleep 60', { deadlineMs: 300 }, /it did not end within 0.3 s/],
])('the error says what is wrong: %s', async (_, script, options, message) => {
  await expect(figure(script, options)).rejects.toThrow(message);
});
