import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PacelineApiError } from '@paceline/client';
import { describeSurface, parseRunSpec, runSpecSchema } from '@paceline/spec';
import { afterAll, describe, expect, it } from 'vitest';
import { differences, HEADINGS, headingOf, readSpec, resumePoint, specIssues } from '../commands/train.js';
import { SpecError } from '../failure.js';
import { jsonFault, readSpecFile } from './spec-file.js';
import { mergeFlags, specFlags, specOptions } from './spec-flags.js';

const temp = mkdtempSync(join(tmpdir(), 'paceline-spec-'));
afterAll(() => rmSync(temp, { recursive: true, force: true }));
const file = (name: string, text: string): string => {
  const path = join(temp, name);
  writeFileSync(path, text);
  return path;
};
const issuesOf = (act: () => unknown): readonly unknown[] => {
  try {
    act();
  } catch (error) {
    expect(error).toBeInstanceOf(SpecError);
    return (error as SpecError).issues.map(({ path, at, message }) => [path, at?.replace(`${temp}/`, ''), message]);
  }
  return expect.unreachable();
};

it('a field that only GraphQL has read is one of the spec', () => {
  const refused = (path: string, code = 'BAD_USER_INPUT') =>
    specIssues(new PacelineApiError(code, 'm', { issues: [{ path, message: 'm' }] }));
  expect(refused('spec.optimizer.beta1')).toEqual([{ path: 'optimizer.beta1', message: 'm' }]);
  expect(refused('spec')).toEqual([{ path: '(spec)', message: 'm' }]);
  expect(refused('seed', 'INVALID_INPUT')).toEqual([{ path: 'seed', message: 'm' }]);
  expect([refused('clusterSpecId'), refused('spec', 'CONFLICT'), specIssues(new PacelineApiError('BAD_USER_INPUT', 'm'))]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

describe('flags', () => {
  it('stand under a heading of the help, every one, and each heading has fields that exist', () => {
    const paths = specFlags().map(({ field }) => field.path);
    expect(paths.filter((path) => headingOf(path) === undefined)).toEqual([]);
    const first = new Set(describeSurface().map(({ path }) => path.split('.')[0]!));
    expect(HEADINGS.flatMap(([, fields]) => fields).filter((field) => !first.has(field))).toEqual([]);
  });

  it('exist for every field, with short names in optimizer, strategy and length', () => {
    const names = Object.fromEntries(specFlags().map(({ field, name }) => [field.path, name]));
    expect(Object.keys(names)).toEqual(
      describeSurface()
        .filter((field) => field.kind !== 'group')
        .map((field) => field.path),
    );
    expect(names).toMatchObject({
      globalBatch: 'global-batch',
      'optimizer.name': 'optimizer',
      'optimizer.learningRate': 'learning-rate',
      'strategy.servers': 'servers',
      'length.epochs': 'epochs',
      'checkpoint.final': 'checkpoint-final',
      modelTopology: 'model-topology',
    });
  });

  it('appear for a field that is added to the schema, with its description and default', () => {
    const extended = runSpecSchema.safeExtend({ warmupRounds: runSpecSchema.shape.seed.describe('Rounds with a growing rate.') });
    const flags = specFlags(describeSurface(extended));
    const option = specOptions(flags).find((candidate) => candidate.long === '--warmup-rounds');
    expect(option?.description).toBe('Rounds with a growing rate. Default 42.');
    expect(option?.parseArg?.('12', undefined)).toBe(12);
  });

  it('must not be ambiguous', () => {
    const clash = runSpecSchema.safeExtend({ epochs: runSpecSchema.shape.seed });
    expect(() => specFlags(describeSurface(clash))).toThrow('epochs and length.epochs would both be --epochs');
  });

  it('are converted or refused with the flag named', () => {
    const parse = (long: string, text: string): unknown =>
      specOptions(specFlags()).find((option) => option.long === long)!.parseArg!(text, undefined);
    expect(parse('--learning-rate', '1e-2')).toBe(0.01);
    expect(parse('--metrics', 'accuracy')).toEqual(['accuracy']);
    expect(parse('--metrics', 'acc')).toEqual(['accuracy']);
    expect(parse('--metrics', '')).toEqual([]);
    for (const [long, text] of [
      ['--replicas', '4.5'],
      ['--replicas', ''],
      ['--seed', '0x10'],
      ['--learning-rate', 'fast'],
      ['--optimizer', 'lambada'],
      ['--metrics', 'accuracy,f9'],
      ['--model-topology', '/nowhere'],
    ] as const) {
      expect(() => parse(long, text), `${long} ${text}`).toThrow(
        expect.objectContaining({ code: 'FLAG_INVALID', message: expect.stringContaining(long) }),
      );
    }
  });

  it('read a topology, bare or inside a model.json', () => {
    const parse = specOptions(specFlags()).find((option) => option.long === '--model-topology')!.parseArg!;
    const topology = { class_name: 'Sequential', config: { layers: [] } };
    for (const text of [topology, { modelTopology: topology }, { modelTopology: { model_config: topology } }])
      expect(parse(file('m.json', JSON.stringify(text)), undefined)).toEqual(topology);
  });

  const merged = (fromFile: Record<string, unknown>, given: Record<string, unknown>): unknown =>
    mergeFlags(fromFile, new Map(Object.entries(given)));

  it('win over the file, field by field', () => {
    expect(
      merged({ seed: 1, replicas: 2, optimizer: { name: 'adam', learningRate: 1, beta1: 0.5 } }, { seed: 9, 'learning-rate': 0.1 }),
    ).toEqual({ seed: 9, replicas: 2, optimizer: { name: 'adam', learningRate: 0.1, beta1: 0.5 } });
  });

  it('replace what cannot stand beside them', () => {
    expect(merged({ length: { rounds: 5 } }, { epochs: 2 })).toEqual({ length: { epochs: 2 } });
    expect(merged({ optimizer: { name: 'momentum', momentum: 0.5 } }, { optimizer: 'adam', 'learning-rate': 0.01 })).toEqual({
      optimizer: { name: 'adam', learningRate: 0.01 },
    });
    expect(merged({ model: 'cnn' }, { 'model-topology': { class_name: 'Sequential', config: {} } })).toEqual({
      model: { topology: { class_name: 'Sequential', config: {} } },
    });
    expect(merged({ modelTopology: {} }, { model: 'cnn' })).toEqual({ model: 'cnn' });
    expect(merged({ model: { topology: {} } }, { model: 'cnn' })).toEqual({ model: 'cnn' });
  });

  it('that say the same thing in two ways are refused, also when one of them is wrong', () => {
    for (const given of [
      { rounds: 2, epochs: 3 },
      { rounds: 1200, epochs: 0 },
      { model: 'mlp', 'model-topology': {} },
    ])
      expect(() => merged({}, given)).toThrow(expect.objectContaining({ code: 'FLAG_INVALID', exit: 'usage' }));
  });

  it('fill a group from its default where a field alone would not say which member is meant', () => {
    const result = parseRunSpec(merged({}, { 'learning-rate': 0.2, servers: 3 }));
    expect(result).toMatchObject({
      ok: true,
      spec: { optimizer: { name: 'momentum', learningRate: 0.2, momentum: 0.9 }, strategy: { kind: 'parameter-server', servers: 3 } },
    });
  });

  it('name a strategy of another kind, and its fields', () => {
    const given = { 'local-steps': 50, strategy: 'local-update', 'outer-optimizer': 'nesterov', 'outer-learning-rate': 0.5, servers: 2 };
    expect(parseRunSpec(merged({}, given))).toMatchObject({
      ok: true,
      spec: { strategy: { kind: 'local-update', localSteps: 50, outerOptimizer: 'nesterov', outerLearningRate: 0.5, servers: 2 } },
    });
  });

  it('do not change the file that they are laid over', () => {
    const fromFile = { optimizer: { name: 'adam' } };
    merged(fromFile, { 'learning-rate': 0.2 });
    expect(fromFile).toEqual({ optimizer: { name: 'adam' } });
  });
});

describe('spec files', () => {
  const read = (path: string, given: Record<string, unknown> = {}): unknown =>
    readSpec(readSpecFile(path), new Map(Object.entries(given)), specFlags());

  it('are YAML or JSON', () => {
    expect(read(file('a.yaml', '# mine\nmodel: cnn\nlength:\n  rounds: 7\n'))).toMatchObject({ model: 'cnn', length: { rounds: 7 } });
    expect(read(file('a.json', '\uFEFF{"model": "cnn", "seed": 3}'))).toMatchObject({ model: 'cnn', seed: 3 });
  });

  it('name line and column of every wrong field, and the flag where the value came from one', () => {
    const path = file(
      'wrong.yaml',
      'model: mpl\noptimizer:\n  name: adam\n  learningRate: -1\nstrategy:\n    kind: parameter-server\n    servers: 1000\nreplicaz: 2\n',
    );
    const issues = issuesOf(() => read(path, { seed: -1 })) as string[][];
    expect(issues.map(([field, at]) => [field, at])).toEqual([
      ['model', 'wrong.yaml:1:1'],
      ['optimizer.learningRate', 'wrong.yaml:4:3'],
      ['strategy.servers', 'wrong.yaml:7:5'],
      ['seed', '--seed'],
      ['replicaz', 'wrong.yaml:8:1'],
    ]);
  });

  it.each([
    ['tab.yaml', 'model: mlp\n\tseed: 1\n', '2:'],
    ['open.yaml', 'a: [1\nb: 2', '2:1'],
    ['twice.yaml', 'seed: 1\nseed: 2\n', '2:1'],
    ['broken.json', '{"model": "mlp",\n "seed": }', '2:10'],
    ['end.json', '{"model": "mlp"', '1:16'],
    ['comma.json', '{"seed": 1,\n}', '2:1'],
    ['quotes.json', "{'seed': 1}", '1:2'],
  ])('%s is refused with its place', (name, text, place) => {
    const [[field, at]] = issuesOf(() => readSpecFile(file(name, text))) as [string[]];
    expect(field).toBe('(file)');
    expect(at).toContain(`${name}:${place}`);
  });

  it('that are empty, a list, a bomb of aliases, too large or not there are refused', () => {
    for (const text of ['', '- a\n', '"text"', '~']) expect(issuesOf(() => readSpecFile(file('x.yaml', text)))).toHaveLength(1);
    const bomb = `a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d]\n`;
    expect(issuesOf(() => readSpecFile(file('bomb.yaml', bomb)))).toHaveLength(1);
    expect(() => readSpecFile(file('large.yaml', `# ${'x'.repeat(4 * 1024 * 1024)}`))).toThrow(
      expect.objectContaining({ code: 'SPEC_FILE_TOO_LARGE' }),
    );
    expect(() => readSpecFile(join(temp, 'none.yaml'))).toThrow(
      expect.objectContaining({ code: 'SPEC_FILE_UNREADABLE', exit: 'notFound' }),
    );
    expect(() => readSpecFile(temp)).toThrow(expect.objectContaining({ code: 'SPEC_FILE_UNREADABLE' }));
  });

  it('cannot reach a prototype', () => {
    expect(issuesOf(() => read(file('proto.yaml', '__proto__:\n  polluted: 1\n')))).toHaveLength(1);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });
});

describe('the place of a JSON fault', () => {
  it.each([
    ['[1, 2, oops]', 7, 'no JSON'],
    ['{"a": 01}', 7, 'missing'],
    ['"no end', 0, 'no JSON'],
    ['{"a": 1, // why\n}', 9, 'no comments'],
    ['{"a": 1} {}', 9, 'nothing may follow'],
    ['', 0, 'value'],
  ])('of %j is where the text up to there could still become JSON', (text, offset, message) =>
    expect(jsonFault(text)).toEqual({ offset, message: expect.stringContaining(message) }),
  );

  it('is the end of a text that is nested too deep', () => expect(jsonFault('['.repeat(1e6))).toMatchObject({ offset: 1e6 }));
});

describe('--resume-from', () => {
  it('sends what was given and nothing else: the rest is as in the other run', () => {
    const said = (given: Record<string, unknown>, text = '{}'): unknown =>
      differences(readSpecFile(file('resume.yaml', text)), new Map(Object.entries(given)), specFlags());
    expect(differences(undefined, new Map(), specFlags())).toEqual({});
    expect(said({ 'learning-rate': 0.01, servers: 2, 'gradient-clip-norm': 1, rounds: 500, seed: 3 })).toEqual({
      optimizer: { learningRate: 0.01 },
      strategy: { servers: 2 },
      gradient: { clipNorm: 1 },
      length: { rounds: 500 },
      seed: 3,
    });
    expect(said({ 'learning-rate': 0.01 }, 'optimizer:\n  momentum: 0.5\n')).toEqual({ optimizer: { learningRate: 0.01, momentum: 0.5 } });
  });

  const RUN = '0190c5a5-0000-7000-8000-000000000000';
  it('is a run, or a checkpoint in it', () => {
    for (const run of [RUN, '3fa9c21b', 'first try', '@last']) {
      expect(resumePoint(run)).toEqual({ runId: run });
      expect(resumePoint(`${run}@40`)).toEqual({ runId: run, round: 40 });
    }
  });
  it.each(['', '@newest', `${RUN}@`, `${RUN}@-1`, `${RUN}@1.5`, `${RUN}@12345678901`, '@last@', '@40'])('%j is refused', (text) => {
    expect(() => resumePoint(text)).toThrow(/is not a run, or RUN@ROUND/u);
  });
});
