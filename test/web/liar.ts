/** A parameter server that claims a run and reports hostile texts about it, through the same stream as a real one. */
import { connectRedis, controlKey, reportKey, sendReport, startHeartbeats, type KeyOfReport, type Report } from '@paceline/control-plane';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import { expect } from 'vitest';

const ID = 'ps-liar';

/** @param secret of the installation: nobody else is believed */
export async function startLiar(redisUrl: string, runId: string, secret: string): Promise<{ stop(): Promise<void> }> {
  const redis = connectRedis(redisUrl, 'liar');
  await new Promise((resolve) => redis.once('ready', resolve));
  const keyOf: KeyOfReport = (report) => reportKey(secret, report);
  const describe = () => ({
    id: ID,
    host: '<i>host</i>',
    pid: 1,
    protocolVersion: PROTOCOL_VERSION,
    version: '0',
    startedAtMs: Date.now(),
    fingerprint: null,
    rssBytes: 1,
    runId,
  });
  const heartbeats = startHeartbeats(redis, 'server', describe, keyOf);
  const address = { index: 0, serverId: ID, host: '127.0.0.1', port: 9, unixPath: null };
  await sendReport(redis, { kind: 'server.claimed', runId, attempt: 1, address }, keyOf);
  // The api tells the servers to begin before it believes what a coordinator says.
  await expect.poll(() => redis.hget(controlKey(runId), 'start')).not.toBeNull();
  for (const report of lies(runId)) await sendReport(redis, report, keyOf);
  return {
    stop: async () => {
      await heartbeats.stop();
      redis.disconnect();
    },
  };
}

function lies(runId: string): Report[] {
  const at = { atMs: Date.now() };
  const state = {
    phase: 'training' as const,
    round: 1,
    totalRounds: 1175,
    view: 1,
    seats: [],
    refusedFrames: 0,
    refusedConnections: 0,
    waitingFor: '\u202Egnihton\u001b[2J',
  };
  const event = (sequence: number, type: 'training.started' | 'worker.joined' | 'run.failed', message: string) => ({
    ...at,
    sequence,
    kind: 'event' as const,
    type,
    message,
    data: {},
  });
  const told = [
    event(1, 'training.started', 'began'),
    event(2, 'worker.joined', '<img src=x onerror="alert(3)"> \u001b[31mred\u001b[0m \u202Eevil\u2069 & "quoted"\u0007'),
  ];
  return [
    { kind: 'journal', runId, attempt: 1, after: 0, entries: told, state },
    {
      kind: 'journal',
      runId,
      attempt: 1,
      after: 2,
      entries: [event(3, 'run.failed', '<b>bold</b>\u200B lie')],
      state: { ...state, phase: 'failed' },
    },
  ];
}
