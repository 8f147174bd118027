/**
 * Pausing, resuming and scaling a run in a real browser, with real servers and workers; what is shown of attempts and checkpoints. On a stack
 * without servers and workers: it gets one of each.
 */
import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { TestBrowser } from './chromium.js';
import { everyMetric } from './every-metric.js';
import { patient, type Pace } from '@paceline/testkit';
import type { WebStack } from './stack.js';
import { Watcher } from './watcher.js';

const WAIT_MS = patient(60_000);

export const runActions = (given: () => { readonly stack: WebStack; readonly browser: TestBrowser }): void => {
  describe('what is asked of a run', () => {
    let stack: WebStack;
    let context: BrowserContext;
    let page: Page;
    let watcher: Watcher;
    let slow: Pace | undefined;
    beforeAll(async () => {
      stack = given().stack;
      await Promise.all([stack.start('ps'), stack.start('worker')]);
      context = await given().browser.context();
      context.setDefaultTimeout(WAIT_MS);
      page = await context.newPage();
      watcher = new Watcher(page);
    });
    afterAll(() => context?.close());
    afterEach(() => {
      slow?.end();
      slow = undefined;
    });

    const card = (name: string) => page.getByRole('region', { name, exact: true });
    const shot = async (name: string): Promise<void> => {
      const folder = process.env['PACELINE_SCREENSHOTS'];
      if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
    };

    it('a run is paused, stands on its checkpoint, gets fewer workers and goes on in a second attempt', async () => {
      slow = stack.slowly();
      const { id } = await stack.client.createRun({ name: 'long one', length: { rounds: 100_000 } });
      await page.goto(`${stack.url}/runs/${id}#key=${stack.key}`);
      await page.getByRole('heading', { name: 'long one', level: 1 }).waitFor();
      await page.locator('.run-title').getByText('Running', { exact: true }).waitFor();
      expect(await card('Attempts').count(), 'one attempt is no news').toBe(0);

      await page.getByRole('button', { name: 'Pause run' }).click();
      await page.locator('.run-title').getByText('Paused', { exact: true }).waitFor();
      await card('Checkpoints').getByText('pause').waitFor();
      // What the coordinator said last is not told as what is so now.
      const summary = page.getByRole('region', { name: 'Progress', exact: true });
      await expect.poll(() => summary.textContent()).toMatch(/Paused.*Examples\/s–Workers0/);
      expect(await summary.textContent()).not.toMatch(/Finished|left/);
      expect(await card('Workers').textContent()).toContain('its seats are free');
      expect(await card('Parameter servers').textContent()).not.toContain('started');
      await shot('paused-light');

      await page.getByRole('button', { name: 'Workers…' }).click();
      await page.getByLabel('Workers, 1 to 4').fill('1');
      await shot('workers-dialog');
      await page.getByRole('button', { name: 'Set' }).click();
      await expect.poll(async () => (await stack.client.run(id))!.workersWanted, { timeout: WAIT_MS }).toBe(1);

      await page.getByRole('button', { name: 'Resume run' }).click();
      await page.locator('.run-title').getByText('Running', { exact: true }).waitFor();
      const row = card('Attempts').getByRole('row').nth(2);
      await expect.poll(() => row.textContent()).toMatch(/^1.*paused in round \d/);
      expect((await stack.client.run(id))!.attempt).toBe(2);
      await page.emulateMedia({ colorScheme: 'dark' });
      await shot('resumed-dark');
      await page.setViewportSize({ width: 390, height: 844 });
      const sidewaysScroll = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await expect.poll(sidewaysScroll, { timeout: WAIT_MS }).toBe(0);
      await shot('resumed-dark-390');
      await page.emulateMedia({ colorScheme: 'light' });
      await shot('resumed-light-390');
      await stack.client.cancelRun(id);
      await page.locator('.run-title').getByText('Cancelled', { exact: true }).waitFor();
      expect(await page.getByRole('button', { name: /Pause run|Resume run|Workers|Cancel run/ }).count()).toBe(0);
      expect(watcher.complaints).toEqual([]);
    });

    it.runIf(process.env['PACELINE_SOAK'] === '1')('a run that has finished is trained for longer', async () => {
      const { id } = await stack.client.createRun({ name: 'short one', length: { rounds: 5 } });
      await page.setViewportSize({ width: 1280, height: 900 });
      await page.goto(`${stack.url}/runs/${id}#key=${stack.key}`);
      await page.getByRole('heading', { name: 'short one', level: 1 }).waitFor();
      await page.locator('.run-title').getByText('Succeeded', { exact: true }).waitFor();
      // A length that is less than an epoch is no "epoch 1 of 0".
      expect(await page.getByRole('region', { name: 'Progress', exact: true }).textContent()).toContain('Round 5 of 50.02 epochs');
      const before = await predictedAccuracy(id);
      await page.getByRole('button', { name: 'Extend run…' }).click();
      await page.getByRole('radio', { name: 'Rounds' }).check();
      await page.getByLabel('Rounds more').fill('7');
      await page.getByText('5 rounds + 7 = 12 rounds').waitFor();
      await shot('extend-dialog');
      await page.getByRole('button', { name: 'Extend', exact: true }).click();
      await expect.poll(async () => (await stack.client.run(id))!.progress.totalRounds, { timeout: WAIT_MS }).toBe(12);
      await expect.poll(async () => (await stack.client.run(id))!.status, { timeout: WAIT_MS }).toBe('SUCCEEDED');
      await page.locator('.run-title').getByText('Succeeded', { exact: true }).waitFor();
      expect((await stack.client.run(id))!.attempt).toBe(2);
      // The new result has predictions of its own.
      expect(await predictedAccuracy(id)).not.toBe(before);
      expect(watcher.complaints).toEqual([]);
    });

    /** As the panel shows it, after a look at the whole of it. */
    async function predictedAccuracy(id: string): Promise<string> {
      const panel = card('Predictions');
      const matrix = panel.getByRole('region', { name: /^Confusion matrix/ });
      const measured = (await stack.client.run(id))!.result!.accuracy!;
      await panel.getByText('10,000 examples of the test split').waitFor();
      await expect
        .poll(() => panel.locator('.predictions-lead').textContent(), { timeout: WAIT_MS })
        .toContain(`${Math.round(10_000 - measured * 10_000).toLocaleString('en-US')} wrong`);
      const zeros = matrix.getByRole('row', { name: /^0 / }).getByRole('cell');
      const counts = await zeros.allTextContents();
      expect(counts.map((text) => Number(text.replace(',', ''))).reduce((sum, each) => sum + each, 0)).toBe(980);
      expect(await matrix.getByRole('columnheader').allTextContents()).toEqual(
        ['', ...Array.from({ length: 10 }, (_, digit) => String(digit))].slice(-10),
      );
      expect(await panel.getByRole('img', { name: /^Example [\d,]+: \d, taken for \d$/ }).count()).toBe(24);
      await matrix.focus();
      expect(await matrix.evaluate((element) => element === document.activeElement)).toBe(true);
      return (await panel.locator('.predictions-lead').textContent())!;
    }

    it('predicted numbers stand against the true ones, in the units of the data, and what cannot be asked is said', async () => {
      const { id } = await stack.client.createRun({ name: 'numbers', dataset: 'made-up-regression', length: { rounds: 5 } });
      await page.goto(`${stack.url}/runs/${id}#key=${stack.key}`);
      const panel = card('Predictions');
      await panel.getByRole('img', { name: /^Predicted y against true y, 500 points from -\d/ }).waitFor();
      expect(await panel.locator('circle').count()).toBe(500);
      const [output] = (await stack.client.predictions(id)).outputs;
      const shown = await panel.locator('.predictions-figures .figure').allTextContents();
      expect(output?.kind === 'values' && [output.meanAbsoluteError, output.rSquared].map((figure) => figure!.toPrecision(3))).toEqual(
        [shown[0], shown[2]].map((text) => Number(text).toPrecision(3)),
      );
      expect(await panel.getByRole('region', { name: 'Largest errors' }).getByRole('row').count()).toBe(11);
      await page.setViewportSize({ width: 390, height: 844 });
      await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
      // What the server says instead of them is shown in its words.
      await page.route('**/graphql*', (route) =>
        /RunPredictions/.test(`${route.request().url()} ${route.request().postData()}`)
          ? route.fulfill({
              json: { data: { run: { predictions: { state: 'UNAVAILABLE', reason: 'The dataset was removed.', outputs: [] } } } },
            })
          : route.fallback(),
      );
      await page.reload();
      await panel.getByText('The dataset was removed.').waitFor();
      await page.unroute('**/graphql*');
      await panel.getByRole('button', { name: 'Try again' }).click();
      await panel.getByRole('img', { name: /^Predicted y/ }).waitFor();
      expect(watcher.complaints).toEqual([]);
    });

    it('a run draws every metric with its validations, the best round, and a rate that was lowered', () => everyMetric(page, stack));
  });
};
