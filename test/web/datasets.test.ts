/** Datasets in a real browser: a file is dropped and imported by the api, looked at, trained on and removed; what is refused is said. */
import { patient } from '@paceline/testkit';
import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startBrowser, type TestBrowser } from './chromium.js';
import { runActions } from './run-actions.js';
import { startWebStack, type WebStack } from './stack.js';
import { Watcher } from './watcher.js';

const WAIT_MS = patient(60_000);
const SPECIES = ['setosa', 'versicolor', 'virginica'];
const FLOWERS = [
  'sepal_length,year,species',
  ...Array.from({ length: 100 }, (_, i) => `${(5 + (i % 3) + (i % 7) / 10).toFixed(1)},${1950 + i},${SPECIES[i % 3]}`),
].join('\n');

let stack: WebStack;
let browser: TestBrowser;
let context: BrowserContext;
let page: Page;
let watcher: Watcher;
beforeAll(async () => {
  [stack, browser] = await Promise.all([startWebStack(), startBrowser()]);
  context = await browser.context();
  context.setDefaultTimeout(WAIT_MS);
  page = await context.newPage();
  watcher = new Watcher(page);
  await page.goto(`${stack.url}/#key=${stack.key}`);
});
afterAll(async () => {
  await context?.close();
  await browser?.close();
  await stack?.stop();
});

const card = (name: string) => page.getByRole('region', { name, exact: true });
const choose = (name: string, text: string | Buffer) =>
  page.getByLabel('Choose files').setInputFiles({ name, mimeType: 'application/octet-stream', buffer: Buffer.from(text) });
const sidewaysScroll = (): Promise<number> =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

it('imports a file that is chosen, and shows what it holds', async () => {
  await page.getByRole('link', { name: 'Datasets', exact: true }).click();
  await page.getByRole('heading', { name: 'Datasets', level: 1 }).waitFor();
  expect(await page.getByRole('row', { name: /mnist.*built-in/ }).textContent()).toContain('70,000');

  await choose('Flowers 2026.csv', FLOWERS);
  const name = page.getByLabel('Name of the dataset');
  expect(await name.inputValue()).toBe('flowers-2026');
  // The columns of the file are offered as the label.
  await expect
    .poll(() => page.locator('datalist option').evaluateAll((all) => all.map((each) => each.getAttribute('value'))))
    .toContain('species');
  await name.fill('No Name');
  await page.getByRole('alert').getByText('The name must have 1 to 64 lower-case letters').waitFor();
  expect(await page.getByRole('button', { name: 'Import', exact: true }).isDisabled()).toBe(true);
  await name.fill('flowers.2026');
  await page.getByLabel('Label column').fill('species');
  await page.getByRole('button', { name: 'Import', exact: true }).click();
  await card('Imports').getByText('Ready: version').waitFor();
  expect(await page.getByRole('row', { name: /flowers\.2026/ }).textContent()).toMatch(/team1003/);

  await card('Imports').getByRole('link', { name: 'flowers.2026' }).click();
  await page.getByRole('heading', { name: 'flowers.2026', level: 1 }).waitFor();
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('H1');
  expect(await page.locator('.train-command code').textContent()).toBe('npx paceline train --dataset flowers.2026');
  expect(
    await card('Columns')
      .getByRole('row', { name: /^species label/ })
      .textContent(),
  ).toMatch(/category.*3$/);
  await page.getByRole('img', { name: /^Histogram of sepal_length: from 5 to / }).waitFor();
  expect(await card('Distributions').locator('.classes li').count()).toBe(3);
  expect(await card('Splits').locator('tbody th').allTextContents()).toEqual(['train', 'validation', 'test']);
  await card('Preview').locator('tbody tr').nth(9).waitFor();
  await card('Preview').getByRole('button', { name: 'Next' }).click();
  await expect.poll(() => card('Preview').locator('tbody th').first().textContent()).toBe('11');
  // A name with a dot is a page like any other.
  expect((await page.reload())?.status()).toBe(200);
  await card('Columns').waitFor();
});

it('says which row of a file is wrong', async () => {
  await page.goto(`${stack.url}/datasets`);
  await choose('broken.csv', 'a,b\n1,2\n3,4\n5\n7,8\n');
  await page.getByRole('button', { name: 'Import', exact: true }).click();
  await expect
    .poll(() => card('Imports').locator('.problem').textContent(), { timeout: WAIT_MS })
    .toMatch(/broken\.csv.*row 3|broken\.csv.*line 4/);
});

it('imports tables with decimal commas, whose files are one series', async () => {
  await page.goto(`${stack.url}/datasets`);
  const day = (from: number): string =>
    ['load;price', ...Array.from({ length: 20 }, (_, i) => `1.${String(from + i).padStart(3, '0')},5;${i},25`)].join('\n');
  const files = ['day-9.csv', 'day-10.csv'].map((name, i) => ({ name, mimeType: 'text/csv', buffer: Buffer.from(day(20 * i)) }));
  await page.getByLabel('Choose files').setInputFiles(files.toReversed());
  await page.getByText('Read in this order: day-9.csv, day-10.csv').waitFor();
  await page.getByLabel('Name of the dataset').fill('power');
  const oneSeries = page.getByLabel('All files are one series');
  expect(await oneSeries.count()).toBe(0);
  await page.getByLabel('Keep the order of the rows').check();
  await oneSeries.check();
  await page.getByLabel('Columns are separated by').selectOption('Comma');
  await page.getByLabel('Decimal sign').selectOption({ value: 'comma' });
  await page.getByRole('alert').getByText('A comma cannot be the decimal sign').waitFor();
  await page.getByLabel('Columns are separated by').selectOption('Semicolon');
  expect(await sidewaysScroll()).toBeLessThanOrEqual(0);
  await page.getByRole('button', { name: 'Import', exact: true }).click();
  await card('Imports').getByRole('link', { name: 'power' }).click();
  await page.getByRole('heading', { name: 'power', level: 1 }).waitFor();
  // A column of numbers, and not of words.
  expect(await card('Columns').getByRole('row', { name: /^load/ }).textContent()).toMatch(/^load *number.*1001 to 1040/);
  expect(await card('Splits').locator('thead th').allTextContents()).toEqual(['Split', 'Rows', 'Share', 'Series', 'Size']);
  expect(await card('Splits').locator('tbody td').nth(2).textContent()).toBe('1');
  // Row 1 has 1.000,5 and 0,25: those of day-9.
  expect(await card('Preview').locator('tbody tr').first().textContent()).toBe('110010.25');
});

it('links a run with its dataset, and refuses to remove what a run trains on', async () => {
  const { id } = await stack.client.createRun({
    name: 'on flowers',
    dataset: 'flowers.2026',
    learningRate: { warmupRounds: 3, schedule: 'cosine' },
  });
  await page.goto(`${stack.url}/runs/${id}`);
  await page.getByRole('img', { name: /^Learning rate: from 0 at round 1 to / }).waitFor();
  await card('Spec').getByText('cosine, warmup rounds 3').waitFor();
  await page.getByRole('banner').getByRole('link', { name: 'Datasets' }).waitFor();
  await page
    .locator('.run-id')
    .getByRole('link', { name: /^flowers\.2026@[0-9a-f]{12}$/ })
    .click();
  await card('Runs on this version').getByRole('link', { name: 'on flowers' }).waitFor();

  const remove = page.getByRole('dialog', { name: 'Remove “flowers.2026”?' });
  await page.getByRole('button', { name: 'Remove…' }).click();
  await remove.getByRole('button', { name: 'Remove', exact: true }).click();
  await remove.getByText(`Runs that are not over train on it: ${id}`).waitFor();
  await stack.client.cancelRun(id);
  await remove.getByRole('checkbox', { name: 'Also when finished runs were trained on it' }).check();
  await expect
    .poll(
      async () => {
        if (await remove.isVisible()) await remove.getByRole('button', { name: 'Remove', exact: true }).click();
        return new URL(page.url()).pathname;
      },
      { timeout: WAIT_MS, interval: 500 },
    )
    .toBe('/datasets');
  await expect.poll(() => page.getByRole('row', { name: /flowers\.2026/ }).count()).toBe(0);
});

it('fits on a phone', async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const path of ['/datasets', '/datasets/mnist']) {
    await page.goto(`${stack.url}${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await expect.poll(sidewaysScroll).toBe(0);
  }
  await choosePhone();
  expect(watcher.complaints).toEqual([]);
});

/** The form of an import has room as well. */
async function choosePhone(): Promise<void> {
  await page.goto(`${stack.url}/datasets`);
  await choose(`${'a-very-long-name-'.repeat(8)}.csv`, FLOWERS);
  await page.getByLabel('Name of the dataset').waitFor();
  expect(await sidewaysScroll()).toBe(0);
}

runActions(() => ({ stack, browser })); // with the same stack; what is before this has nobody to train
