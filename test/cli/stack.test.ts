/** `paceline up` with everything around it, as people use it on one machine: real databases, servers and workers. */
import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { EXIT } from '@paceline/runtime';
import { pace } from '@paceline/testkit';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { needOf, processesOf } from '../../tools/dev.mjs';
import { allGone, createHome, familyOf, until, type Home, type Running } from './command-line.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

let home: Home;
let up: Running;
let announced: {
  url: string;
  apiKey: string;
  pid: number;
  processes: { name: string; pid: number }[];
  services: { postgres: string; redis: string };
};
/** Long enough not to end by itself while a test looks at it. */
const LONG = ['--rounds', '1000000', '--replicas', '2', '--global-batch', '64'];

/** `HOSTILE` would break every client library that reads it: the stack must not. */
const HOSTILE = { PGHOST: 'nowhere.invalid', PGPORT: '1', PGUSER: 'nobody', PGPASSWORD: 'x' };

beforeAll(async () => {
  home = createHome();
  up = home.start(['up', '--json', '--port', '0', '--workers', '2'], HOSTILE);
  announced = JSON.parse(
    await until('up to be ready', () => up.stdout() || (up.child.exitCode === null ? undefined : up.stderr()), 90_000),
  ) as typeof announced;
});
afterAll(() => home.dispose());

/** A run that goes on while commands are started computes no more than they need: they share two cores with it. */
function slowed(share = 0.05): void {
  const pids = announced.processes.filter(({ name }) => name.startsWith('worker-')).map(({ pid }) => pid);
  const slow = pace(() => pids, share);
  onTestFinished(() => slow.end());
}

async function json<T = Record<string, unknown>>(...args: string[]): Promise<T> {
  const { exit, stdout, stderr } = await home.run([...args, '--json']);
  expect(exit, stderr).toBe(0);
  return JSON.parse(stdout) as T;
}

async function statusOf(runId: string): Promise<string> {
  return (await json<{ status: string }>('run', runId)).status;
}

describe('up', () => {
  it('says where everything is, and writes the key into a private file', async () => {
    expect(announced).toMatchObject({
      pid: up.child.pid,
      link: `${announced.url}/#key=${announced.apiKey}`,
      services: { postgres: expect.stringContaining('embedded'), redis: expect.stringContaining('embedded') },
    });
    expect(announced.processes.map(({ name }) => name).sort()).toEqual(['api', 'postgresql', 'ps-1', 'redis', 'worker-1', 'worker-2']);
    const file = join(home.folder, 'config/config.json');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ url: announced.url, apiKey: announced.apiKey });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(home.folder, 'secrets.json')).mode & 0o777).toBe(0o600);
    const dashboard = await fetch(announced.url);
    expect(dashboard.status).toBe(200);
    expect(await dashboard.text()).toContain('<title>');
  });

  it('gives each process a user of its own at Redis, and none the password of the operator', () => {
    const users = announced.processes.flatMap(({ name, pid }) => {
      const address = /(?:^|\0)REDIS_URL=([^\0]+)/.exec(readFileSync(`/proc/${pid}/environ`, 'utf8'))?.[1];
      return address ? [`${name} ${new URL(address).username}`] : [];
    });
    expect(users.sort()).toEqual(['api api', 'ps-1 ps', 'worker-1 worker', 'worker-2 worker']);
  });

  it('says that it runs already when it is asked again', async () => {
    const again = await home.run(['up', '--port', '0']);
    expect(again.exit).toBe(EXIT.temporary);
    expect(again.stderr).toContain(`runs already (pid ${announced.pid}, started from this checkout, data in ${home.folder})`);
    expect(again.stderr).toContain(announced.url);
  });

  it('shows its workers and servers, and is healthy for the doctor', async () => {
    const fleet = await until('the fleet to report', async () => {
      const { workers, servers } = await json<{ workers: { pid: number; engines: { name: string }[] }[]; servers: unknown[] }>('workers');
      return workers.length === 2 && servers.length === 1 ? workers : undefined;
    });
    expect(fleet.map(({ pid }) => pid).sort()).toEqual(
      announced.processes
        .filter(({ name }) => name.startsWith('worker'))
        .map(({ pid }) => pid)
        .sort(),
    );
    for (const { engines } of fleet) expect(engines.map(({ name }) => name)).toContain('wasm');
    const table = await home.run(['workers']);
    expect(table.stdout).toMatch(/^ROLE +NAME +STATUS/);
    const { checks } = await json<{ checks: { name: string; status: string; message: string }[] }>('doctor');
    expect(checks.filter(({ status }) => status !== 'ok')).toEqual([]);
    expect(checks.find(({ name }) => name === 'api')!.message).toContain('belongs to team');
  });
});

interface FleetMember {
  readonly id: string;
  readonly pid: number;
  readonly runId: string | null;
}
interface Ended {
  readonly status: string;
  readonly result: { readonly weightsSha256: string } | null;
  readonly events: readonly { readonly type: string; readonly message: string }[];
}

const withEvents = (id: string) => json<Ended>('run', id, '--events', '100');

describe('a run', () => {
  it('is trained with a progress that ends in its result', async () => {
    const { exit, stdout, stderr } = await home.run(['train', '--rounds', '30', '--global-batch', '200', '--name', 'short']);
    expect(exit, stderr).toBe(0);
    expect(stdout).toMatch(/^SUCCEEDED[^]*accuracy +\d[^]*weights +sha256 [0-9a-f]{64}/);
    expect(stderr).toMatch(/run [0-9a-f-]{36} {2}short/);
    expect(stderr, 'no drawing where there is no terminal').not.toContain('\u001b');
  });

  it('leaves weights that can be downloaded and are compared with its hash', async () => {
    const { exit, stderr } = await home.run(['weights', 'short', '-o', 'short.safetensors']);
    expect(exit, stderr).toBe(0);
    const file = readFileSync(join(home.folder, 'short.safetensors'));
    const header = JSON.parse(file.subarray(8, 8 + Number(file.readBigUInt64LE(0))).toString()) as Record<string, unknown>;
    expect(Object.keys(header)).toHaveLength(7); // six variables and the metadata
    const again = await home.run(['weights', 'short', '-o', 'short.safetensors']);
    expect([again.exit, again.stderr]).toEqual([EXIT.usage, expect.stringContaining('is there already')]);
    const { logs } = await json<{ logs: { name: string }[] }>('logs');
    expect(logs.map(({ name }) => name)).toEqual(expect.arrayContaining(['api', 'ps-1', 'worker-1', 'worker-2']));
    expect((await home.run(['logs', 'api'])).stdout).toContain('the api listens');
  });

  it.runIf(IS_SOAK)('has the same result again for the same spec file, as JSON too', async () => {
    writeFileSync(join(home.folder, 'spec.yaml'), 'name: twice\nlength: { rounds: 12 }\nglobalBatch: 96\nreplicas: 3\nseed: 7\n');
    const first = await json<{ status: string; result: { weightsSha256: string; rounds: number } }>('train', 'spec.yaml');
    const second = await json<typeof first>('train', 'spec.yaml');
    const other = await json<typeof first>('train', 'spec.yaml', '--seed', '8');
    expect(first).toMatchObject({ status: 'SUCCEEDED', result: { rounds: 12 } });
    expect(second.result.weightsSha256).toBe(first.result.weightsSha256);
    expect(other.result.weightsSha256).not.toBe(first.result.weightsSha256);
  });

  it.runIf(IS_SOAK)(
    'whose worker crashes in native code goes on: the worker is replaced, the weights are the same, and an event says why',
    async () => {
      const flags = ['--rounds', '400', '--replicas', '4', '--global-batch', '256'];
      const calm = await json<Ended>('train', ...flags);
      const id = (await home.run(['train', '--detach', ...flags])).stdout.trim();
      const seated = async (): Promise<FleetMember[]> =>
        (await json<{ workers: FleetMember[] }>('workers')).workers.filter(({ runId }) => runId === id);
      // It lasts until both have a seat, however fast the machine is.
      const slow = new Set<number>();
      const paced = pace(() => [...slow], 0.1);
      let victim: FleetMember;
      try {
        const both = await until('both workers to have a seat', async () => {
          const busy = await seated();
          if (busy[0]) slow.add(busy[0].pid);
          return busy.length === 2 ? busy : undefined;
        });
        victim = both.find(({ pid }) => announced.processes.some((process) => process.name === 'worker-2' && process.pid === pid))!;
        process.kill(victim.pid, 'SIGSEGV');
      } finally {
        paced.end();
      }
      const over = await until(
        'the run to end',
        async () => {
          const run = await withEvents(id);
          return ['SUCCEEDED', 'FAILED'].includes(run.status) ? run : undefined;
        },
        90_000,
      );
      expect(over.status).toBe('SUCCEEDED');
      expect(over.result!.weightsSha256).toBe(calm.result!.weightsSha256);
      expect(over.events.find(({ type }) => type === 'worker.died')?.message).toBe(
        `the process of worker ${victim.id} ended by SIGSEGV: native code of its engine has crashed; its replicas are computed by others`,
      );
    },
  );

  it('goes on after --detach, is listed and shown, and ends by cancel', async () => {
    const { runId } = await json<{ runId: string }>('train', '--detach', '--name', 'evil\u200b name', ...LONG).catch(() => ({ runId: '' }));
    expect(runId, 'a name with format characters is refused').toBe('');
    const detached = await home.run(['train', '--detach', '--name', 'long', ...LONG]);
    expect(detached.exit, detached.stderr).toBe(0);
    const id = detached.stdout.trim();
    expect(detached.stderr).toContain(`paceline run ${id.slice(-8)} --watch`);
    await until('it to run', async () => (await statusOf(id)) === 'RUNNING');
    slowed();
    expect((await home.run(['runs'])).stdout).toMatch(new RegExp(`^${id.slice(-8)} +long +RUNNING`, 'm'));
    for (const reference of ['long', '@last', id.slice(-8), id.slice(0, 30)]) expect(await statusOf(reference), reference).toBe('RUNNING');
    const shown = await home.run(['run', id, '--events', '5']);
    expect(shown.stdout).toMatch(/^long {2}RUNNING[^]*replicas +2 on \d worker[^]*server 0[^]*seat 0/);
    const cancelled = await home.run(['cancel', 'long']);
    expect([cancelled.exit, cancelled.stdout], cancelled.stderr).toEqual([0, `long (${id.slice(-8)}) is CANCELLED\n`]);
    const again = await home.run(['cancel', id]);
    expect([again.exit, again.stderr]).toEqual([EXIT.unsuccessful, expect.stringContaining('[CONFLICT]')]);
    expect((await home.run(['run', id, '--watch'])).exit, 'a run that was cancelled is no success').toBe(EXIT.unsuccessful);
  });

  it('goes on when Ctrl-C detaches from it, and can be returned to', async () => {
    const training = home.start(['train', ...LONG]);
    const id = await until('its id', () => /run ([0-9a-f-]{36})/.exec(training.stderr())?.[1]);
    await until('its progress', () => training.stderr().includes('round '));
    slowed();
    training.child.kill('SIGINT');
    const { exit, stderr } = await training.finished;
    expect(exit).toBe(EXIT.interrupted);
    expect(stderr).toMatch(new RegExp(`Return to it with: (npx )?paceline run ${id.slice(-8)} --watch`));
    expect(await statusOf(id)).toBe('RUNNING');
    const watching = home.start(['run', id, '--watch']);
    await until('its progress again', () => watching.stderr().includes('round '));
    await home.run(['cancel', id]);
    expect(await watching.finished).toMatchObject({ exit: EXIT.unsuccessful, stdout: expect.stringContaining('CANCELLED') });
  });

  it('that is not there, or is none of ours, is not found', async () => {
    const absent = [
      ['run', '01a1fe42-ecf7-739d-bc94-6d36d2ce8924'],
      ['cancel', '01a1fe42-ecf7-739d-bc94-6d36d2ce8924'],
      ['run', '../../etc'],
      ['cancel', 'nonsense'],
    ];
    const results = await Promise.all(absent.map((args) => home.run(args)));
    expect(results.map(({ exit }) => exit)).toEqual(absent.map(() => EXIT.notFound));
    for (const { stderr } of results) expect(stderr).toContain('[NOT_FOUND]');
  });

  it('needs a key that is right', async () => {
    const wrong = await home.run(['runs'], { PACELINE_API_KEY: 'pcl_0123456789ab_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' });
    expect([wrong.exit, wrong.stderr]).toEqual([EXIT.keyRefused, expect.stringContaining('[UNAUTHENTICATED]')]);
    const doctor = await home.run(['doctor'], { PACELINE_API_KEY: 'wrong' });
    expect([doctor.exit, doctor.stdout]).toEqual([EXIT.unsuccessful, expect.stringMatching(/failed +api/)]);
  });
});

interface Progress {
  readonly status: string;
  readonly attempt: number;
  readonly progress: { readonly round: number };
}
const progressOf = (id: string) => until('the api to answer', () => json<Progress>('run', id).catch(() => undefined), 60_000);
/** The id of the run that goes on through all that follows. */
let lasting = '';

describe('supervision', () => {
  it('starts what is killed again while a run goes on, at the same place: a worker, the api, PostgreSQL and Redis', async () => {
    lasting = (await home.run(['train', '--detach', ...LONG])).stdout.trim();
    await until('it to run', async () => (await statusOf(lasting)) === 'RUNNING');
    // One slow worker of two makes the rounds slow, and leaves the machine to what is started.
    const { pid: worker } = announced.processes.find(({ name }) => name === 'worker-2')!;
    const slow = pace(() => [worker], 0.2);
    onTestFinished(() => slow.end());
    for (const name of ['worker-1', 'postgresql', 'redis', 'api']) {
      const { pid } = announced.processes.find((process) => process.name === name)!;
      process.kill(pid, 'SIGKILL');
      await until(`${name} to run again`, () => up.stderr().includes(`${name} runs again`), 60_000);
    }
    expect(up.stderr()).toContain('worker-1 ended by SIGKILL; starting again in 200 ms');
    expect(up.stderr()).toContain('redis ended; starting again in 200 ms');
    const before = await progressOf(lasting);
    expect(before).toMatchObject({ status: 'RUNNING', attempt: 1 });
    const after = await until('the run to go on', async () => {
      const now = await progressOf(lasting);
      return now.progress.round > before.progress.round ? now : undefined;
    });
    expect(after, 'no attempt was lost').toMatchObject({ status: 'RUNNING', attempt: 1 });
    const short = await home.run(['train', '--rounds', '5', '--global-batch', '64']);
    expect(short.exit, short.stderr).toBe(0);
  });
});

describe('down', () => {
  it('ends everything and keeps the data for the next up', async () => {
    const family = familyOf(announced.pid);
    expect(family.length).toBeGreaterThan(8);
    const { progress } = await progressOf(lasting);
    const { exit, stdout } = await home.run(['down']);
    expect([exit, stdout]).toEqual([0, `Stopped (pid ${announced.pid}).\n`]);
    expect((await up.finished).exit).toBe(0);
    await allGone(family, 2000);
    expect(existsSync(join(home.folder, 'up.pid.json'))).toBe(false);
    expect(await json('down')).toEqual({ stopped: false, reason: 'not running' });

    const { apiKey } = announced;
    up = home.start(['up', '--json', '--port', '0', '--workers', '1']);
    announced = JSON.parse(await until('up to be ready again', () => up.stdout(), 90_000)) as typeof announced;
    expect(announced.apiKey, 'the key still works').toBe(apiKey);
    const { runs } = await json<{ runs: { name: string; status: string }[] }>('runs');
    expect(runs.find(({ name }) => name === 'short')).toMatchObject({ status: 'SUCCEEDED' });

    // What its server said last may have reached Redis after the api had ended: until that is read, the run is RUNNING as it was.
    const goesOn = async (): Promise<boolean> => {
      const { status, attempt } = await progressOf(lasting);
      return status === 'RUNNING' && attempt > 1;
    };
    await until('the run to go on in its next attempt', goesOn, 60_000);
    slowed();
    const { checkpoints } = await json<{ checkpoints: { round: number; reason: string }[] }>('checkpoints', lasting);
    const last = checkpoints.find(({ reason }) => reason === 'shutdown');
    expect(last?.round, 'the stack ended with a checkpoint of the round that was in hand').toBeGreaterThanOrEqual(progress.round);
    const { stdout: history } = await home.run(['run', lasting, '--events', '40']);
    expect(history).toContain(`stopped at the checkpoint of round ${last!.round}`);
    expect(history, 'nothing is trained twice').not.toContain('will be redone');
    expect(await progressOf(lasting)).toMatchObject({ attempt: 2 });
    await home.run(['cancel', lasting]);
    await until('it to be over', async () => (await statusOf(lasting)) === 'CANCELLED');
  });

  it('is not needed after a SIGKILL: nothing is left, and the next up works', async () => {
    const family = familyOf(announced.pid);
    up.child.kill('SIGKILL');
    await up.finished;
    await allGone(family);
    up = home.start(['up', '--json', '--port', '0', '--workers', '1']);
    announced = JSON.parse(await until('up to be ready after the kill', () => up.stdout(), 90_000)) as typeof announced;
  });

  it('is not waited for when another host has taken the folder: all is killed, and nothing of the other one is written or removed', async () => {
    const next = familyOf(announced.pid);
    const file = join(home.folder, 'up.pid.json');
    const other = JSON.stringify({ pid: 1, ticks: '1', host: 'other', place: 'another boot', machine: 'another machine' });
    writeFileSync(file, other);
    up.child.kill('SIGINT');
    const { exit, stderr } = await up.finished;
    expect([exit, stderr]).toEqual([0, expect.stringContaining(`another host has taken ${home.folder}: what runs here is killed`)]);
    await allGone(next, 2000);
    expect(readFileSync(file, 'utf8')).toBe(other);
    expect(existsSync(join(home.folder, 'postgres/cluster/postmaster.pid'))).toBe(true);
    rmSync(file);
  });
});

describe('a port', () => {
  it('that is taken is named before anything is started', async () => {
    const blocker = createServer();
    await new Promise<void>((done) => blocker.listen(0, '127.0.0.1', done));
    const { port } = blocker.address() as { port: number };
    const { exit, stderr } = await home.run(['up', '--port', String(port)]);
    blocker.close();
    expect(exit).toBe(EXIT.configuration);
    expect(stderr).toContain(`Port ${port} for the api is taken`);
    expect(stderr).toMatch(/--port \d+ \(it is free/);
    expect(existsSync(join(home.folder, 'up.pid.json'))).toBe(false);
  });
});

describe('npm run dev', () => {
  it('knows what a changed file asks for, and which processes load it', () => {
    expect(
      ['libs/data/src/a.ts', 'libs/data/src/a.test.ts', 'libs/client/src/a.graphql', 'libs/kernels/a.mjs', 'apps/dashboard/src/A.tsx'].map(
        needOf,
      ),
    ).toEqual(['compile', 'nothing', 'build', 'build', 'build']);
    expect(['libs/exchange', 'libs/spec', 'libs/client', 'apps/api'].map(processesOf)).toEqual([
      ['ps', 'worker'],
      ['api', 'ps', 'worker'],
      [],
      ['api'],
    ]);
  });

  it.runIf(IS_SOAK)('starts the processes again that load a changed file, and no others; Ctrl-C ends everything', async () => {
    const own = createHome();
    try {
      const dev = own.startTool('tools/dev.mjs', ['--json', '--port', '0', '--workers', '1']);
      const { processes } = JSON.parse(await until('dev to be ready', () => dev.stdout(), 90_000)) as typeof announced;
      await until('it to watch', () => dev.stderr().includes('watches the sources'));
      const source = join(import.meta.dirname, '../../libs/exchange/src/index.ts');
      chmodSync(source, statSync(source).mode); // a change that builds of other tests do not see
      expect(await until('a restart', () => /dev: (.*) ready after/.exec(dev.stderr())?.[1], 60_000)).toBe('ps-1, worker-1');
      const family = familyOf(dev.child.pid!);
      const isLeft = (name: string): boolean => family.includes(processes.find((process) => process.name === name)!.pid);
      expect(['api', 'redis', 'ps-1', 'worker-1'].map(isLeft)).toEqual([true, true, false, false]);
      expect(existsSync(join(source, '../../dist/.tsbuildinfo')), 'it is compiled to what the build has made of it').toBe(true);
      dev.child.kill('SIGINT');
      expect((await dev.finished).exit).toBe(0);
      await allGone(family, 2000);
    } finally {
      await own.dispose();
    }
  });
});
