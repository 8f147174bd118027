/** `paceline server`: processes that serve a program of the library, and mistakes in their command line. */
import { createServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createHome, type Home } from './command-line.js';

const SECRET = 'a secret of these tests';
let home: Home;
beforeAll(() => {
  home = createHome();
});
afterAll(() => home.dispose());

async function freeAddress(): Promise<string> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return `127.0.0.1:${port}`;
}

it('serves until it is told to end, and says which mistake keeps it from that', async () => {
  const [ps, worker] = [await freeAddress(), await freeAddress()];
  const cluster = JSON.stringify({ ps: [ps], worker: [worker] });
  const env = { PACELINE_CLUSTER_SECRET: SECRET };
  const config = JSON.stringify({ cluster: { ps: [ps], worker: [worker] }, task: { type: 'worker', index: 0 } });
  const running = [
    home.start(['server', '--cluster', cluster, '--job', 'ps', '--index', '0'], env),
    home.start(['server', '--json'], { ...env, TF_CONFIG: config }),
  ];
  await expect.poll(() => running[0]!.stdout()).toContain(`ps 0 serves at ${ps}`);
  await expect.poll(() => running[1]!.stdout()).toContain('"pid"');
  const taken = await home.run(['server', '--cluster', cluster, '--job', 'ps', '--transport', 'tcp'], env);
  expect(taken).toMatchObject({ exit: 78, stderr: expect.stringContaining('PORT_IN_USE') as string });
  for (const { child, finished } of running) {
    child.kill('SIGTERM');
    expect(await finished).toMatchObject({ exit: 0 });
  }
  const without = await home.run(['server', '--cluster', cluster, '--job', 'ps']);
  expect(without).toMatchObject({ exit: 78, stderr: expect.stringContaining('PACELINE_CLUSTER_SECRET') as string });
  const nobody = await home.run(['server'], env);
  expect(nobody).toMatchObject({ exit: 78, stderr: expect.stringContaining('no cluster is given') as string });
  const outside = await home.run(['server', '--cluster', cluster, '--job', 'ps', '--index', '1'], env);
  expect(outside).toMatchObject({ exit: 78, stderr: expect.stringContaining('whole number below 1') as string });
});
