import { BUILT_IN_DATASETS, DATASET_NAME } from '@paceline/spec';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BUILT_IN_NAMES, columnsIn, DECIMALS, DELIMITERS, inNameOrder, isName, isTableOfText, nameOf } from './import-options.js';
import { parseReference, trainCommand, versionIn } from './versions.js';

describe('the name of a dataset', () => {
  it('is made of the name of the file', () => {
    const names = ['House prices (2).csv.gz', 'Müller.parquet', 'train.v2.jsonl', '___.csv'].map(nameOf);
    expect(names).toEqual(['house-prices-2', 'muller', 'train.v2', '']);
  });
  it('is one that the api takes, or nothing', () => {
    fc.assert(fc.property(fc.string({ unit: 'grapheme' }), (name) => nameOf(name) === '' || DATASET_NAME.test(nameOf(name))));
    fc.assert(fc.property(fc.string(), (name) => isName(name) === DATASET_NAME.test(name)));
  });
  it('is none of a built-in dataset', () => {
    expect(BUILT_IN_NAMES).toEqual(BUILT_IN_DATASETS);
  });
});

describe('columns of a file, by its beginning', () => {
  it('are the first line of a table, whatever its delimiter', () => {
    expect(columnsIn('a.csv', '\ufeffid,"price, in €",species\r\n1,2,x')).toEqual(['id', 'price, in €', 'species']);
    expect(columnsIn('a.tsv', 'a\tb,c\n')).toEqual(['a', 'b,c']);
    expect(columnsIn('a.csv', 'a;b\n')).toEqual(['a', 'b']);
    expect(columnsIn('a.csv', '1.5,2,x\n')).toEqual([]);
  });
  it('are those of the delimiter that a person has said', () => {
    expect(columnsIn('a.csv', 'a|b,c,d\n')).toEqual(['a|b', 'c', 'd']);
    expect(columnsIn('a.csv', 'a|b,c,d\n', '|')).toEqual(['a', 'b,c,d']);
  });
  it('may be written in several ways in tables of text alone', () => {
    expect(['a.csv', 'a.TSV.gz', 'a.txt.zst', 'a.parquet', 'a.jsonl', 'csv'].map(isTableOfText)).toEqual([
      true,
      true,
      true,
      false,
      false,
      false,
    ]);
  });
  it('are separated by one character, and their numbers have one of two signs', () => {
    for (const { delimiter } of DELIMITERS) expect(delimiter?.length ?? 1).toBe(1);
    for (const { decimal } of DECIMALS) expect(['.', ',', null]).toContain(decimal);
  });
  it('are the fields of the first object of JSON Lines', () => {
    expect(columnsIn('a.jsonl', '{"text":"x","label":1}\n{"te')).toEqual(['text', 'label']);
    expect(columnsIn('a.jsonl', '{"text":"cut')).toEqual([]);
    expect(columnsIn('a.parquet', 'PAR1')).toEqual([]);
  });
});

it('files stand in the order of their names, whatever order a browser gives them in', () => {
  const files = ['day-10.csv', 'day-2.csv', 'day-1.csv'].map((name) => ({ name }));
  expect(inNameOrder(files).map(({ name }) => name)).toEqual(['day-1.csv', 'day-2.csv', 'day-10.csv']);
});

describe('versions', () => {
  const version = '0123456789abcdef'.repeat(4);
  it('are read from specs and addresses, and shortened in commands', () => {
    expect(parseReference(`flowers@${version}`)).toEqual({ name: 'flowers', version });
    expect(parseReference('mnist')).toEqual({ name: 'mnist', version: undefined });
    expect(parseReference('<b>')).toBeUndefined();
    expect([versionIn('?version=0123456789ab'), versionIn('?version=xyz'), versionIn('')]).toEqual(['0123456789ab', undefined, undefined]);
    expect(trainCommand('flowers', version)).toBe('npx paceline train --dataset flowers@0123456789ab');
  });
});
