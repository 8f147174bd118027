/**
 * The slow link of the product beside one that the kernel makes: a token bucket (tc-tbf(8)) on the loopback of a network namespace of its own, which ends with
 * its process. Where namespaces or `tc` are not permitted it is skipped, and says why.
 */
import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';

const MBIT = 20;
const BYTES = 625_000;
const BYTES_PER_SECOND = (MBIT * 1e6) / 8;
const SHAPED = `ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate ${MBIT}mbit burst 16kb latency 1000ms`;

/** Runs a command in a namespace of its own, whose loopback is shaped. */
function inNamespace(command: readonly string[], timeoutMs: number) {
  const script = `${SHAPED} && exec "$@"`;
  return spawnSync('unshare', ['--map-root-user', '--net', 'sh', '-c', script, 'sh', ...command], { encoding: 'utf8', timeout: timeoutMs });
}

/** Undefined where a namespace with a shaped loopback is permitted. */
function reasonAgainst(): string | undefined {
  const { status, stderr, error } = inNamespace(['true'], 10_000);
  return status === 0 ? undefined : (error?.message ?? stderr.trim()) || `unshare ended with ${status}`;
}

const millisecondsOf = ({ status, stdout, stderr }: { status: number | null; stdout: string; stderr: string }): number => {
  expect([status, stderr]).toEqual([0, '']);
  return Number(stdout);
};

test(
  'a round over the link of the product takes what its rate says, as over a token bucket of the kernel',
  { timeout: 120_000 },
  ({ skip }) => {
    const reason = reasonAgainst();
    if (reason !== undefined) {
      process.stderr.write(`skipped: a network namespace with tc tbf is not permitted here: ${reason}\n`);
      return skip(reason);
    }
    const script = [process.execPath, `${import.meta.dirname}/shaped-link.mjs`];
    const unlimited = ['1e12', String(BYTES)];
    const ofKernel = millisecondsOf(inNamespace([...script, ...unlimited], 60_000));
    const own = [...script, String(BYTES_PER_SECOND), String(BYTES)];
    const ofProduct = millisecondsOf(spawnSync(own[0]!, own.slice(1), { encoding: 'utf8', timeout: 60_000 }));
    const bare = [...script, ...unlimited];
    const withoutLink = millisecondsOf(spawnSync(bare[0]!, bare.slice(1), { encoding: 'utf8', timeout: 60_000 }));
    const least = (2 * BYTES * 1000) / BYTES_PER_SECOND;
    process.stderr.write(
      `${least} ms by the rate: ${ofKernel.toFixed(0)} ms over tc tbf, ${ofProduct.toFixed(0)} ms over the link, ${withoutLink.toFixed(0)} ms bare\n`,
    );
    // Headers of packets, and what a busy machine takes by itself.
    const most = least * 1.25 + withoutLink;
    for (const took of [ofKernel, ofProduct]) {
      expect(took).toBeGreaterThan(least * 0.95);
      expect(took).toBeLessThan(most);
    }
  },
);
