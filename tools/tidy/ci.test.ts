/** What continuous integration runs: a fresh clone can be installed, its script parses, and the workflow names commands that there are. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { notesOf } from '../release.mjs';
import { files, jsonOf, repositoryRoot, textOf } from './tree.js';

describe('continuous integration', () => {
  it('a fresh clone can be installed: npm ci finds every package in the lockfile, those of other platforms too', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-ci-'));
    try {
      for (const file of files.filter((path) => /^(package(-lock)?\.json|\.npmrc|(libs|apps)\/[^/]+\/package\.json)$/.test(path)))
        cpSync(join(repositoryRoot, file), join(folder, file));
      const { status, stderr } = spawnSync('npm', ['ci', '--dry-run', '--offline', '--ignore-scripts'], { cwd: folder, encoding: 'utf8' });
      expect(
        stderr
          .split('\n')
          .filter((line) => line.startsWith('npm error'))
          .join('\n'),
      ).toBe('');
      expect(status).toBe(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it.each(['start', 'demo', 'dev'])('tools/%s.mjs begins in it with modules of Node alone: it installs the others', (name) => {
    const seen = new Set<string>();
    const packages: string[] = [];
    const follow = (path: string): void => {
      if (seen.has(path)) return;
      seen.add(path);
      for (const [, from] of textOf(path).matchAll(/^import\b[^;]*? from '([^']+)';/gmu)) {
        if (from!.startsWith('.')) follow(join(path, '..', from!));
        else if (!from!.startsWith('node:')) packages.push(`${path}: ${from}`);
      }
    };
    follow(`tools/${name}.mjs`);
    expect([seen.has('tools/ready-to-run.mjs'), packages]).toEqual([true, []]);
  });

  it('every process says the version that package.json has', () => {
    const { version } = jsonOf('package.json') as { version: string };
    const said = files
      .filter((path) => /^(apps|libs)\/[^/]+\/src\/.*\.ts$/u.test(path) && !/(\.(test|fixture)|\/pins)\.ts$/u.test(path))
      .flatMap((path) =>
        [...textOf(path).matchAll(/\b(?:version: |VERSION = |RELEASE = )'(\d+\.\d+\.\d+)'/gu)].map((match) => `${path} ${match[1]}`),
      );
    const places = [
      'apps/api/src/models/model-exports.ts',
      'apps/cli/src/program.ts',
      'apps/ps/src/server-process.ts',
      'apps/worker/src/worker-process.ts',
    ];
    expect(said.sort()).toEqual(places.map((path) => `${path} ${version}`));
  });

  it('.ci/run can be executed and is bash that parses', () => {
    accessSync(join(repositoryRoot, '.ci', 'run'), constants.X_OK);
    expect(spawnSync('bash', ['-n', '.ci/run'], { cwd: repositoryRoot, encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  });

  it('the workflow calls it on every Node that is promised', () => {
    const workflow = parse(textOf('.github/workflows/ci.yml')) as {
      jobs: { test: { strategy: { matrix: { node: number[] } }; steps: { run?: string }[] } };
    };
    const { steps, strategy } = workflow.jobs.test;
    expect(steps.at(-1)!.run).toBe('.ci/run');
    const least = Number(/>=\s*(\d+)/.exec((jsonOf('package.json')['engines'] as { node: string }).node)![1]);
    expect(Math.min(...strategy.matrix.node)).toBe(least);
    expect(strategy.matrix.node).toContain(22);
  });

  it('the workflow runs the soak and many seeds of the simulator every night, and they are commands', () => {
    const workflow = parse(textOf('.github/workflows/ci.yml')) as {
      on: { schedule: { cron: string }[] };
      jobs: { nightly: { if: string; steps: { run?: string }[] } };
    };
    expect(workflow.on.schedule).toHaveLength(1);
    const { if: condition, steps } = workflow.jobs.nightly;
    expect(condition).toContain("'schedule'");
    const commands = steps.flatMap(({ run }) => run ?? []);
    expect(commands).toEqual(expect.arrayContaining(['npm run soak', 'npm run simulate -- --seeds 10000']));
    const { scripts } = jsonOf('package.json') as { scripts: Record<string, string> };
    for (const [, script] of commands.join('\n').matchAll(/npm run (\S+)/g)) expect(Object.keys(scripts)).toContain(script);
  });

  it('a release is tested first, and makes images of the stages that there are', () => {
    const text = textOf('.github/workflows/release.yml');
    const { jobs } = parse(text) as {
      jobs: Record<string, { needs?: string; steps: { run?: string }[]; strategy?: { matrix: { target?: string[] } } }>;
    };
    expect(Object.entries(jobs).map(([name, { needs }]) => [name, needs])).toEqual([
      ['test', undefined],
      ['release', 'test'],
      ['images', 'test'],
    ]);
    expect(jobs['test']!.steps.at(-1)!.run).toBe('.ci/run');
    const stages = [...textOf('deploy/Dockerfile').matchAll(/^FROM .* AS (\S+)$/gm)].map(([, name]) => name);
    expect(stages).toEqual(expect.arrayContaining(jobs['images']!.strategy!.matrix.target!));
    expect(text.match(/secrets\.\w+/g), 'it needs no secret but the token of the run').toBeNull();
  });

  it('the notes of a release are its part of the changelog', () => {
    const changelog = '# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2027-01-02\n\n- new\n\n## [1.0.0] - 2027-01-01\n\n- old\n';
    expect(notesOf(changelog, '1.1.0')).toBe('- new\n');
    expect(() => notesOf(changelog, '1.2.0')).toThrow('no part "## [1.2.0]"');
    expect(() => notesOf(textOf('CHANGELOG.md'), 'Unreleased')).not.toThrow();
  });
});
