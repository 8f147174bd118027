/** The docs are held to the code: error codes, dependencies, links, commands, decisions. */
import { existsSync } from 'node:fs';
import { join, posix } from 'node:path';
import { LEARNING_ERRORS } from '@paceline/learning';
import { DATA_PLANE_ERRORS, messageSchema, PROTOCOL_VERSION } from '@paceline/protocol';
import { ALLOWED_CELLS, ALLOWED_LAYERS, describeSurface, LEFT_OUT } from '@paceline/spec';
import { INGEST_ERRORS } from '@paceline/ingest';
import { STORAGE_ERRORS } from '@paceline/storage';
import { buildSchema, isEnumType, specifiedScalarTypes, type GraphQLObjectType } from 'graphql';
import { describe, expect, it } from 'vitest';
import { FAULTS } from '../../apps/api/src/fault.js';
import { printRunSpecPage } from '../run-spec-page.mjs';
import { importsOf } from './syntax.js';
import { code, files, isTest, jsonOf, productSources, repositoryRoot, textFiles, textOf } from './tree.js';

/** Of GraphQL itself. */
const isSpecifiedScalar = (name: string): boolean => specifiedScalarTypes.some((scalar) => scalar.name === name);
const pages = files.filter((path) => path.endsWith('.md'));
const ERRORS = 'docs/errors.md';

/** Cells of the table rows of a markdown text, without header and rule. */
function rowsOf(markdown: string): string[][] {
  const rows = markdown.split('\n').filter((line) => line.startsWith('|'));
  return rows
    .filter((line, i) => !/^\|[-| ]+\|$/.test(line) && !/^\|[-| ]+\|$/.test(rows[i + 1] ?? ''))
    .map((line) =>
      line
        .slice(1, -1)
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim()),
    );
}

const namesIn = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);

function section(markdown: string, title: string): string {
  const [, after] = markdown.split(`\n## ${title}\n`);
  if (after === undefined) throw new Error(`there is no section "${title}"`);
  return after.split('\n## ')[0]!;
}

describe('docs/errors.md', () => {
  const documented = new Set(rowsOf(textOf(ERRORS)).flatMap(([cell]) => namesIn(cell!)));

  it('has every data-plane code in the words of the catalogue', () => {
    const rows = Object.fromEntries(rowsOf(section(textOf(ERRORS), 'Data plane')).map(([name, meaning]) => [namesIn(name!)[0], meaning]));
    expect(rows).toEqual(DATA_PLANE_ERRORS);
  });

  it('has every storage code in the words of the catalogue', () => {
    const rows = Object.fromEntries(rowsOf(section(textOf(ERRORS), 'Storage')).map(([name, meaning]) => [namesIn(name!)[0], meaning]));
    expect(rows).toEqual(STORAGE_ERRORS);
  });

  it('has every code of the import in the words of the catalogue', () => {
    const rows = Object.fromEntries(rowsOf(section(textOf(ERRORS), 'Import')).map(([name, meaning]) => [namesIn(name!)[0], meaning]));
    expect(rows).toEqual(INGEST_ERRORS);
  });

  it("has every code of the api's catalogue, with its status and title", () => {
    const rows = rowsOf(section(textOf(ERRORS), 'Control plane')).filter((cells) => cells.length === 3);
    const documentedFaults = Object.fromEntries(
      rows.map(([name, status, meaning]) => [namesIn(name!)[0], { status: Number(status), title: meaning!.split(':')[0] }]),
    );
    expect(documentedFaults).toEqual(FAULTS);
  });

  it('has the words of the catalogue of models and schedules', () => {
    const rows = new Map(
      rowsOf(section(textOf(ERRORS), 'Models, data and schedules')).map(([name, meaning]) => [namesIn(name!)[0], meaning]),
    );
    for (const [name, meaning] of Object.entries(LEARNING_ERRORS)) expect(rows.get(name), name).toBe(meaning);
  });

  // A code is what an error is constructed with, or what a field `code` is given; Node's own (ENOENT...) are not ours.
  const USED = /(?:new (?:\w*Error|Fault)\(\s*|\bcode\b\s*[:=]\s*|_CODE = )'([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)'/g;
  const NODES_OWN = /^(E[A-Z]{3,}|ERR_[A-Z_]+|DEPTH_ZERO_.*)$/;

  it('has every code that is used anywhere', () => {
    const used = productSources.flatMap((path) => [...textOf(path).matchAll(USED)].map((match) => ({ path, name: match[1]! })));
    const missing = used.filter(({ name }) => !documented.has(name) && !NODES_OWN.test(name) && name.length > 3);
    expect([...new Set(missing.map(({ path, name }) => `${name} in ${path}`))]).toEqual([]);
  });

  it('has no code that nothing uses', () => {
    const all = productSources.map(textOf).join('\n');
    expect([...documented].filter((name) => !new RegExp(`\\b${name}\\b`).test(all))).toEqual([]);
  });
});

describe('docs/protocol.md', () => {
  const PROTOCOL = 'docs/protocol.md';
  const NUMBER = String.raw`§\d+(?:\.\d+)?`;
  const sections = [...textOf(PROTOCOL).matchAll(new RegExp(`^#{2,3} (${NUMBER}) `, 'gm'))].map(([, number]) => number!);
  // A comment may be wrapped between the name and the number.
  const flat = (path: string): string =>
    textOf(path)
      .replaceAll(/\n[\s/*#]*/g, ' ')
      .replaceAll(new RegExp(`RFC \\d+ ${NUMBER}`, 'g'), '');

  it('numbers its sections once each, in order', () => {
    const inOrder = sections.toSorted((a, b) => a.slice(1).localeCompare(b.slice(1), 'en', { numeric: true }));
    expect(sections).toEqual([...new Set(inOrder)]);
  });

  it('has every section that is cited', () => {
    const CITED = new RegExp(`(docs/protocol\\.md )?(${NUMBER}(?:(?:,| and) ${NUMBER})*)`, 'g');
    const wrong = textFiles
      .filter((path) => path !== PROTOCOL && !path.startsWith('tools/tidy/'))
      .flatMap((path) =>
        [...flat(path).matchAll(CITED)].flatMap(([whole, page, numbers]) => {
          const found = page !== undefined && numbers!.match(new RegExp(NUMBER, 'g'))!.every((number) => sections.includes(number));
          return found ? [] : [`${path}: ${whole}`];
        }),
      );
    expect(wrong).toEqual([]);
  });

  it('has every field of every message, and the version', () => {
    const messages = messageSchema.options.map(({ shape }) => {
      const fields = Object.entries(shape).filter(([name]) => name !== 'type');
      return [shape.type.value, fields.map(([name, schema]) => (schema.safeParse(undefined).success ? `${name}?` : name)).sort()] as const;
    });
    const rows = rowsOf(section(textOf(PROTOCOL), '§5 Messages')).filter(([name]) => name!.startsWith('`'));
    const documented = rows.map((cells) => [
      namesIn(cells[0]!)[0]!,
      namesIn(cells.at(-2)!)
        .filter((name) => /^\w+\??$/.test(name))
        .sort(),
    ]);
    expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(messages));
    expect(textOf(PROTOCOL)).toContain(`at present ${PROTOCOL_VERSION}.`);
  });
});

it('docs/reference/run-spec.md is printed from the schema (npm run docs)', () => {
  expect(textOf('docs/reference/run-spec.md')).toBe(printRunSpecPage(describeSurface(), ALLOWED_LAYERS, ALLOWED_CELLS, LEFT_OUT));
});

describe('docs/reference/schema.graphql', () => {
  it('says of every type, field, argument, input and value what it is', () => {
    const schema = buildSchema(textOf('docs/reference/schema.graphql'));
    const roots = new Set([schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()]);
    const silent: string[] = [];
    const look = (name: string, { description }: { description?: string | null | undefined }): void => {
      if (!description?.trim()) silent.push(name);
    };
    for (const [name, type] of Object.entries(schema.getTypeMap()).filter(([name]) => !name.startsWith('__') && !isSpecifiedScalar(name))) {
      if (!roots.has(type as GraphQLObjectType)) look(name, type);
      if (isEnumType(type)) for (const value of type.getValues()) look(`${name}.${value.name}`, value);
      if (!('getFields' in type)) continue;
      for (const field of Object.values(type.getFields())) {
        look(`${name}.${field.name}`, field);
        if ('args' in field) for (const argument of field.args) look(`${name}.${field.name}(${argument.name})`, argument);
      }
    }
    expect(silent).toEqual([]);
  });
});

describe('dependencies', () => {
  const manifests = files.filter((path) => /(^|^(libs|apps)\/[^/]+\/)package\.json$/.test(path));
  const page = files.find((path) => /^docs\/decisions\/\d+-dependencies\.md$/.test(path))!;
  const reasons = new Map(rowsOf(textOf(page)).flatMap(([names, , reason]) => namesIn(names!).map((name) => [name, reason!] as const)));
  const declared = manifests.flatMap((manifest) => {
    const fields = jsonOf(manifest) as Record<string, Record<string, string> | undefined>;
    return ['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'].flatMap((field) =>
      Object.entries(fields[field] ?? {}).flatMap(([name, version]) =>
        name.startsWith('@paceline/') ? [] : [{ manifest, name, version }],
      ),
    );
  });

  it('have a reason each, and no reason is left without its dependency', () => {
    const names = new Set(declared.map(({ name }) => name));
    expect([...names].filter((name) => (reasons.get(name) ?? '').length < 10).sort()).toEqual([]);
    expect([...reasons.keys()].filter((name) => !names.has(name))).toEqual([]);
  });

  it('are pinned exactly, and to one version everywhere', () => {
    expect(declared.filter(({ version }) => !/^(npm:[@\w/-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))).toEqual([]);
    const versions = new Map<string, Set<string>>();
    for (const { name, version } of declared) versions.set(name, (versions.get(name) ?? new Set()).add(version));
    expect([...versions].filter(([, set]) => set.size > 1)).toEqual([]);
  });

  it('are used where they are declared, unless they are the peer of another', () => {
    const unused = declared.filter(({ manifest, name }) => {
      if (manifest === 'package.json' || name.startsWith('@types/') || /\bPeers? of\b|\bgenerated\b/i.test(reasons.get(name) ?? ''))
        return false;
      const folder = manifest.replace('package.json', '');
      return !code.some(
        (path) =>
          path.startsWith(folder) && importsOf(path).some(({ specifier }) => specifier === name || specifier.startsWith(`${name}/`)),
      );
    });
    expect(unused.map(({ manifest, name }) => `${manifest}: ${name}`)).toEqual([]);
  });
});

describe('pages', () => {
  const LINK = /\[[^\]]*\]\(([^)\s]+)\)/g;
  const anchorsOf = (path: string): string[] =>
    [...textOf(path).matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
      title!
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    );

  it('link to what exists', () => {
    const broken = pages.flatMap((page) =>
      [...textOf(page).matchAll(LINK)].flatMap(([, target]) => {
        if (/^(https?:|mailto:)/.test(target!)) return [];
        const [file, anchor] = target!.split('#') as [string, string | undefined];
        const path = file === '' ? page : posix.join(posix.dirname(page), file);
        if (!existsSync(join(repositoryRoot, path))) return [`${page} -> ${target}`];
        return anchor !== undefined && path.endsWith('.md') && !anchorsOf(path).includes(anchor) ? [`${page} -> ${target}`] : [];
      }),
    );
    expect(broken).toEqual([]);
  });

  it('name files that exist', () => {
    const NAMED = /`((?:apps|libs|tools|test|docs|bench|deploy|prisma)\/[\w./{},*-]*\w[\w./-]*\.\w+)`/g;
    const missing = pages.flatMap((page) =>
      [...textOf(page).matchAll(NAMED)].flatMap(([, path]) =>
        /[{*]/.test(path!) || existsSync(join(repositoryRoot, path!)) ? [] : [`${page}: ${path}`],
      ),
    );
    expect(missing).toEqual([]);
  });

  it('show only npm commands that exist', () => {
    const scripts = Object.keys(jsonOf('package.json')['scripts'] as object);
    const unknown = pages.flatMap((page) =>
      [...textOf(page).matchAll(/(?:`|^ *|&& )npm (?:run )?([a-z][\w:-]*)/gm)].flatMap(([, name]) =>
        [...scripts, 'ci', 'install', 'i'].includes(name!) ? [] : [`${page}: npm ${name}`],
      ),
    );
    expect(unknown).toEqual([]);
  });

  it('show only commands and flags of paceline that exist', () => {
    const sections = new Map<string, string>();
    for (const text of textOf('docs/reference/cli.md').split(/^## /m)) {
      const name = /^paceline ([a-z-]+)/.exec(text)?.[1];
      // A command with commands of its own has a section for each.
      if (name !== undefined) sections.set(name, `${sections.get(name) ?? ''}${text}`);
    }
    const globals = section(textOf('docs/reference/cli.md'), 'Every command');
    const wrong = pages
      .filter((page) => page !== 'docs/reference/cli.md')
      .flatMap((page) =>
        [...textOf(page).matchAll(/(?:`|npx )paceline ([a-z]+)([^#`\n]*)/g)].flatMap(([command, name, rest]) => {
          const text = sections.get(name!);
          if (text === undefined) return [`${page}: ${command}`];
          return [...rest!.matchAll(/--[a-z-]+/g)].flatMap(([flag]) =>
            `${text}${globals}`.includes(`${flag} `) || `${text}${globals}`.includes(`${flag}\``) ? [] : [`${page}: ${command.trim()}`],
          );
        }),
      );
    expect(wrong).toEqual([]);
  });

  it('architecture speaks of every process and library', () => {
    const present = files.flatMap((path) => /^((?:libs|apps)\/[^/]+)\/package\.json$/.exec(path)?.[1] ?? []);
    expect(present.filter((folder) => !textOf('docs/ARCHITECTURE.md').includes(folder))).toEqual([]);
  });

  it('every process and library has a README of at most 40 lines, whose files exist', () => {
    const folders = files.flatMap((path) => /^((?:libs|apps)\/[^/]+)\/package\.json$/.exec(path)?.[1] ?? []);
    const wrong = folders.flatMap((folder) => {
      const page = `${folder}/README.md`;
      if (!files.includes(page)) return [`${page} is missing`];
      const lines = textOf(page).trimEnd().split('\n').length;
      const paths = namesIn(textOf(page)).filter((name) => /^[^@\s]+\/\S*$|^[\w-]+\.m?tsx?$/.test(name));
      const missing = paths.filter((path) => ![`${folder}/${path}`, path].some((place) => existsSync(join(repositoryRoot, place))));
      return [...(lines > 40 ? [`${page} has ${lines} lines`] : []), ...missing.map((path) => `${page}: ${path}`)];
    });
    expect(wrong).toEqual([]);
  });

  it('decisions are numbered without gaps and give context, decision and consequences', () => {
    const decisions = pages.filter((path) => path.startsWith('docs/decisions/'));
    expect(decisions.map((path) => Number(/(\d{3})-[a-z0-9-]+\.md$/.exec(path)?.[1]))).toEqual(decisions.map((_, i) => i + 1));
    for (const path of decisions) {
      const number = /(\d{3})-/.exec(path)![1];
      expect(textOf(path), path).toMatch(new RegExp(`^# ${number} `));
      for (const part of ['**Context.**', '**Decision.**', '**Consequences.**']) expect(textOf(path), path).toContain(part);
    }
  });
});

describe('words', () => {
  const prose = [...textFiles.filter((path) => !path.startsWith('tools/tidy/') && path !== 'docs/GLOSSARY.md' && path !== 'LICENSE')];
  const glossary = rowsOf(textOf('docs/GLOSSARY.md'));

  it('the glossary has every word once, with a meaning', () => {
    const words = glossary.map(([word]) => word!);
    expect(new Set(words).size).toBe(words.length);
    expect(glossary.filter(([, meaning]) => (meaning ?? '').length < 20)).toEqual([]);
  });

  it('no other word stands for the same thing', () => {
    const banned = glossary.flatMap(([, , not]) =>
      (not ?? '')
        .split(',')
        .map((word) => word.trim())
        .filter(Boolean),
    );
    const pattern = new RegExp(`(?<![\\w-])(${[...banned, 'whitelist', 'blacklist'].join('|')})s?(?![\\w-])`, 'i');
    expect(
      prose.flatMap((path) =>
        textOf(path)
          .split('\n')
          .flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}: ${line.trim().slice(0, 100)}`] : [])),
      ),
    ).toEqual([]);
  });

  it('no text names a machine, a home or a package mirror', () => {
    const places = [
      /(?<![\w.])\/(work|root|Users|mnt|workspace)\/[\w.-]/,
      /\/home\/(?!paceline\b|a\b)[a-z]+\//,
      /https?:\/\/[\w.-]*(registry|mirror|nexus|artifactory|proxy)[\w.-]*/i,
      /"resolved": "https?:/,
    ];
    const found = [...textFiles, 'package-lock.json']
      .filter((path) => !path.startsWith('tools/tidy/'))
      .flatMap((path) =>
        textOf(path)
          .split('\n')
          .flatMap((line, i) => (places.some((place) => place.test(line)) ? [`${path}:${i + 1}: ${line.trim().slice(0, 100)}`] : [])),
      );
    expect(found).toEqual([]);
  });
});

it('every test belongs to a part of the suite', () => {
  const homes = [/^(libs|apps)\/[^/]+\/src\//, /^test\/(api|bench|cluster|soak|numerics|web|cli)\//, /^tools\//];
  expect(files.filter((path) => isTest(path) && /\.test\.tsx?$/.test(path) && !homes.some((home) => home.test(path)))).toEqual([]);
});
