import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { noticesOf, packageFolderOf } from '../notices.mjs';

const folder = mkdtempSync(join(tmpdir(), 'paceline-notices-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function installed(name: string, manifest: object, files: Record<string, string>): string {
  const at = join(folder, 'node_modules', name);
  mkdirSync(at, { recursive: true });
  writeFileSync(join(at, 'package.json'), JSON.stringify(manifest));
  for (const [file, text] of Object.entries(files)) writeFileSync(join(at, file), text);
  return join(at, 'dist/index.js');
}

test('a module belongs to the innermost package; our own code belongs to none', () => {
  expect(packageFolderOf('/x/node_modules/a/node_modules/@b/c/lib/d.js')).toBe('/x/node_modules/a/node_modules/@b/c');
  expect(packageFolderOf('/x/node_modules/a/index.js')).toBe('/x/node_modules/a');
  expect(packageFolderOf('/x/node_modules/@paceline/spec/dist/index.js')).toBeUndefined();
  expect(packageFolderOf('/x/libs/spec/dist/index.js')).toBeUndefined();
  expect(packageFolderOf('\0rolldown/runtime')).toBeUndefined();
});

test('each package is named once, with its terms and all its licence files, or what its code says of its licence', () => {
  const one = installed(
    'one',
    { name: 'one', version: '1.0.0', license: 'MIT' },
    { LICENSE: 'Copyright of one', 'NOTICE.md': 'Notice of one' },
  );
  const two = installed(
    '@of/two',
    { name: '@of/two', version: '2.0.0', licenses: [{ type: 'BSD' }] },
    { 'licence.txt': 'Copyright of two' },
  );
  const three = installed('three', { name: 'three', version: '3.0.0' }, {});
  mkdirSync(join(three, '..'), { recursive: true });
  writeFileSync(
    three,
    '/* what it does */\n/** @license\n * Of three. */\nf(); /* (c) Copyright of three */ /** @license\n * Of three. */\n',
  );
  const own = noticesOf([three]);
  for (const part of ['@license\n * Of three.', '(c) Copyright of three']) expect(own.split(part)).toHaveLength(2);
  expect(own).not.toContain('what it does');
  const text = noticesOf([two, one, `${one}?commonjs`, '/x/libs/spec/dist/index.js']);
  expect(text.match(/^(one|@of\/two) .*/gm)).toEqual(['@of/two 2.0.0', 'one 1.0.0']);
  for (const part of ['MIT', 'Copyright of one', 'Notice of one', 'BSD', 'Copyright of two']) expect(text.split(part)).toHaveLength(2);
});
