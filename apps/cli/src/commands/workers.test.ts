import type { PacelineClient, Worker } from '@paceline/client';
import { expect, it } from 'vitest';
import { createTerminal, type Stream } from '../terminal/terminal.js';
import { workers } from './run.js';

const ROW = { name: 'w', host: 'h', pid: 1, rssBytes: 1e8, lastSeenAt: new Date().toISOString(), runId: null, engine: null, engines: [] };

async function said(statuses: readonly string[]): Promise<string> {
  let text = '';
  const stream: Stream = { isTTY: false, columns: () => 120, write: (more) => void (text += more) };
  const client = {
    workers: async () => statuses.map((status) => Object.assign({ status }, ROW) as unknown as Worker),
    servers: async () => [],
  };
  const terminal = createTerminal({ json: false, debug: false }, {}, stream, stream);
  expect(await workers({ terminal, connect: () => client as unknown as PacelineClient })).toBe(0);
  return text;
}

it('a list with a worker that is lost says how long that is shown, and one without does not', async () => {
  expect(await said(['IDLE', 'LOST'])).toContain('it leaves this list ten minutes after its last one');
  expect(await said(['IDLE', 'BUSY'])).not.toContain('ten minutes');
});
