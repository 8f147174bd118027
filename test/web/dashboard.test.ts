/**
 * The dashboard as a person uses it: a real browser, the real api, and real servers and workers that train. The scenarios stand in the
 * order in which the cluster grows: nothing, a queue without anybody, a run that trains, an api that dies, a server that dies.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { BrowserContext, Page } from 'playwright-core';
import { startBrowser, type TestBrowser } from './chromium.js';
import { Watcher } from './watcher.js';
import { startLiar } from './liar.js';
import { gapsIn, lastRoundOfAFresh } from './curve.js';
import * as reading from './page-reading.js';
import { startWebStack, type WebStack } from './stack.js';
import { patient, type Pace, type TestProcess } from '@paceline/testkit';

/** Generous: the browser, two databases and the trainers share the machine. */
const WAIT_MS = patient(40_000);

let stack: WebStack;
let browser: TestBrowser;
let context: BrowserContext;
let page: Page;
let watcher: Watcher;
let slow: Pace | undefined;

beforeAll(async () => {
  [stack, browser] = await Promise.all([startWebStack(), startBrowser()]);
});
afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});
beforeEach(async () => {
  context = await browser.context();
  context.setDefaultTimeout(WAIT_MS);
  page = await context.newPage();
  watcher = new Watcher(page);
});
afterEach(async () => {
  slow?.end();
  slow = undefined;
  await context.close();
  // Nothing may be refused by the content policy, thrown, or written to the console, whatever the scenario was.
  expect(watcher.complaints).toEqual([]);
});

const open = (path = '/'): Promise<unknown> => page.goto(`${stack.url}${path}#key=${stack.key}`);
const heading = (name: string | RegExp) => page.getByRole('heading', { name, level: 1 });
const card = (name: string) => page.getByRole('region', { name, exact: true });

describe('signing in', () => {
  it('says what to do about a wrong key, and takes a right one for this tab', async () => {
    watcher.expect(/401/);
    await page.goto(stack.url);
    await page.getByLabel('API key').fill('two words');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await expect.poll(() => page.getByRole('alert').textContent()).toContain('a key is one word');

    await page.getByLabel('API key').fill('pcl_wrong_key');
    await page.keyboard.press('Enter');
    await page.getByText('This key is not accepted').waitFor();
    // The wrong key is selected, so that the next one replaces it.
    await page.keyboard.insertText(` ${stack.key} `);
    await page.keyboard.press('Enter');
    await heading('Runs').waitFor();
    expect(await reading.stored(page)).toEqual({ tab: stack.key, device: null });
    await page.reload();
    await heading('Runs').waitFor();
    const other = await context.newPage();
    await other.goto(stack.url);
    await other.getByLabel('API key').waitFor();
  });

  it('remembers the key on request, and forgets it on sign out', async () => {
    await page.goto(stack.url);
    await page.getByLabel('API key').fill(stack.key);
    await page.getByLabel('Remember on this device').check();
    await page.getByRole('button', { name: 'Sign in' }).click();
    await heading('Runs').waitFor();
    expect(await reading.stored(page)).toEqual({ tab: null, device: stack.key });
    const other = await context.newPage();
    await other.goto(stack.url);
    await other.getByRole('button', { name: 'Sign out' }).waitFor();
    // A link with an old key does not cost the one that is kept.
    await other.goto(`${stack.url}/#key=pcl_old_key`);
    await other.getByText('This key is not accepted').waitFor();
    expect([await reading.stored(other), new URL(other.url()).hash]).toEqual([{ tab: null, device: stack.key }, '']);
    await other.reload();
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.getByLabel('API key').waitFor();
    expect(await reading.stored(other)).toEqual({ tab: null, device: null });
  });

  it('takes a key from the link once and removes it from the address', async () => {
    await open('/?status=failed');
    await heading('Runs').waitFor();
    expect(page.url()).toBe(`${stack.url}/?status=failed`);
    await page.goBack().catch(() => undefined); // to about:blank: the address with the key is not in the history
    expect(page.url()).not.toContain(stack.key);
  });
});

describe('without anybody to train', () => {
  it('shows how to start a run while there is none', async () => {
    await open();
    await page.getByRole('heading', { name: 'No runs yet' }).waitFor();
    expect(await page.locator('.command code').textContent()).toMatch(/^npx paceline train/);
  });

  it('shows a new run at once, says what it waits for, and cancels it after a confirmation', async () => {
    await open();
    await page.getByRole('heading', { name: 'No runs yet' }).waitFor();
    const { id } = await stack.client.createRun({ name: '<img src=x onerror=alert(1)>' });
    await page.getByRole('link', { name: '<img src=x onerror=alert(1)>' }).click();
    await heading('<img src=x onerror=alert(1)>').waitFor();
    expect(page.url()).toBe(`${stack.url}/runs/${id}`);
    await page.getByText('Waits for 1 parameter server').first().waitFor();

    await page.getByRole('button', { name: 'Cancel run' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    // The harmless answer has the focus, and Escape is one too.
    expect(await dialog.getByRole('button', { name: 'Keep running' }).evaluate((button) => button === document.activeElement)).toBe(true);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    expect((await stack.client.run(id))!.status).toBe('QUEUED');

    await page.getByRole('button', { name: 'Cancel run' }).click();
    await dialog.getByRole('button', { name: 'Cancel run' }).click();
    await page.locator('.run-title .status', { hasText: 'Cancelled' }).waitFor();
    expect(await page.getByRole('button', { name: 'Cancel run' }).count()).toBe(0);
    expect((await stack.client.run(id))!.status).toBe('CANCELLED');
  });

  it('pages by keyset and filters by status and name, all in the address', async () => {
    for (let i = 0; i < 21; i++) await stack.client.cancelRun((await stack.client.createRun({ name: `sweep ${i}` })).id);
    await open('/?status=cancelled');
    const names = page.locator('.row-link');
    await page.getByRole('link', { name: 'sweep 20', exact: true }).waitFor();
    expect(await names.count()).toBe(20);
    await page.getByRole('link', { name: 'Older' }).click();
    await page.getByRole('link', { name: 'sweep 0', exact: true }).waitFor();
    expect(await names.count()).toBe(2);
    expect(page.url()).toContain('after=');
    await page.reload();
    await page.getByRole('link', { name: 'sweep 0', exact: true }).waitFor();
    await page.getByRole('link', { name: 'Newest' }).click();
    await page.getByRole('link', { name: 'sweep 20', exact: true }).waitFor();
    await page.getByRole('link', { name: 'Active' }).click();
    await page.getByRole('heading', { name: 'Nothing is running' }).waitFor();
    await page.goBack();
    await page.getByRole('link', { name: 'sweep 20', exact: true }).waitFor();
    await page.getByLabel('Runs by name').fill('SWEEP 1');
    await page.waitForURL(/\?status=cancelled&name=SWEEP\+1$/);
    await expect.poll(() => names.count()).toBe(11);
    await page.goBack();
    await page.getByRole('link', { name: 'sweep 20', exact: true }).waitFor();
    expect(await page.getByLabel('Runs by name').inputValue()).toBe('');
  });

  it('closes its connection when a run is left, and opens it again for the next', async () => {
    const { id } = await stack.client.createRun({ name: 'waits' });
    const [first] = await Promise.all([page.waitForEvent('websocket'), open(`/runs/${id}`)]);
    await page.getByText('PENDING → QUEUED').waitFor();
    const closed = first.waitForEvent('close');
    await page.getByRole('navigation', { name: 'Breadcrumb' }).getByRole('link', { name: 'Runs' }).click();
    await closed;
    const [second] = await Promise.all([page.waitForEvent('websocket'), page.getByRole('link', { name: 'waits', exact: true }).click()]);
    await page.getByText('PENDING → QUEUED').waitFor();
    expect([first.isClosed(), second.isClosed()]).toEqual([true, false]);
    await stack.client.cancelRun(id);
  });

  it('asks for a list that nothing happens to without being sent it again', async () => {
    await open();
    await page.waitForResponse((response) => response.url().includes('=RunMarks') && response.status() === 304);
  });

  it('waits for an api that is away when it is opened', async () => {
    await open();
    await heading('Runs').waitFor();
    watcher.expect(/503|Failed to load/);
    await page.route('**/graphql?*', (route) =>
      route.fulfill({ status: 503, json: { errors: [{ message: 'PostgreSQL does not answer' }] } }),
    );
    await page.reload();
    await page.getByText('PostgreSQL does not answer Trying again…').waitFor();
    await page.unroute('**/graphql?*');
    await heading('Runs').waitFor();
  });

  it('tells a run that is not there from one that is', async () => {
    await open('/runs/0198c7a5-0000-7000-8000-000000000000');
    await heading('There is no such run').waitFor();
    watcher.expect(/status of 404/);
    expect((await page.goto(`${stack.url}/nowhere`))?.status()).toBe(404);
    await heading('There is no such page').waitFor();
  });

  it('can be used with the keyboard alone', async () => {
    await open();
    await page.getByRole('link', { name: 'sweep 20', exact: true }).waitFor();
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Skip to content');
    await page.keyboard.press('Enter');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('content');
    for (const key of ['j', 'j', 'k']) await page.keyboard.press(key);
    expect(await page.evaluate(() => document.activeElement === document.querySelector('.row-link'))).toBe(true);
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'sweep 20', exact: true }).focus();
    await page.keyboard.press('Enter');
    await heading('sweep 20').waitFor();
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('H1');
  });
});

describe('with a server that tells lies', () => {
  it('shows markup, escapes and bidirectional tricks as plain text', async () => {
    const { id } = await stack.client.createRun({ name: '</script><script>alert(2)</script>', restarts: 0 });
    const liar = await startLiar(stack.redisUrl, id, stack.tokenSecret);
    try {
      await open(`/runs/${id}`);
      await page.locator('.event', { hasText: '<img src=x onerror="alert(3)"> red evil & "quoted"' }).waitFor();
      await page.locator('.reason.bad', { hasText: '<b>bold</b> lie' }).waitFor();
      expect(await page.locator('main img:not(.chart-place), main script, main b').count()).toBe(0);
      const text = (await page.locator('main').textContent())!.replaceAll('\n', ''); // the spec as JSON has lines
      expect(text).not.toMatch(/[\p{Cc}\p{Cf}]/u);
      expect(await page.title()).toBe('Failed · </script><script>alert(2)</script> · Paceline');
    } finally {
      await liar.stop();
    }
  });
});

describe('with a cluster that trains', () => {
  const fleet: TestProcess[] = [];
  beforeAll(async () => {
    fleet.push(...(await Promise.all([stack.start('ps'), stack.start('worker'), stack.start('worker')])));
  });

  it('shows a run from the first round to its weights', async () => {
    // Small batches: the second worker is to have its seat, and the page to show it, before the last round.
    const { id } = await stack.client.createRun({ name: 'digits', globalBatch: 32, length: { epochs: 1 } });
    await open(`/runs/${id}`);
    await page.locator('.run-title .status', { hasText: 'Running' }).waitFor();
    await page.locator('.connection[data-state=live]').waitFor();
    // The table says who computes which: both workers have a seat, and all four replicas are held.
    await expect.poll(() => card('Workers').locator('tbody tr').count(), { timeout: WAIT_MS }).toBe(2);
    const replicas = async () =>
      (await card('Workers').locator('tbody td:nth-child(3)').allTextContents())
        .flatMap((text) => text.split(', ').flatMap(reading.spread))
        .sort();
    await expect.poll(replicas, { timeout: WAIT_MS }).toEqual([0, 1, 2, 3]);
    await expect.poll(() => card('Parameter servers').locator('tbody tr').count()).toBe(1);

    await page.locator('.run-title .status', { hasText: 'Succeeded' }).waitFor({ timeout: 2 * WAIT_MS });
    const run = (await stack.client.run(id))!;
    const result = run.result!;
    await card('Result').waitFor();
    expect(await card('Result').locator('code').textContent()).toBe(result.weightsSha256);
    expect(await card('Result').textContent()).toContain(`${(result.accuracy! * 100).toFixed(2)}`);
    expect(result.accuracy).toBeGreaterThan(0.9);
    // The figures that stand for the run are the evaluation's, and the training's beside them are called so.
    const accuracyFigure = page.locator('.figures > div', { hasText: 'Accuracy' });
    await expect
      .poll(async () => (await accuracyFigure.textContent())!.replaceAll('\u202f', ' '))
      .toMatch(new RegExp(`^Accuracy${(result.accuracy! * 100).toFixed(2)} %evaluation; [\\d.]+ % in training$`));
    expect(await page.getByRole('progressbar', { name: 'Progress of the run' }).getAttribute('aria-valuenow')).toBe('100');
    await expect.poll(() => card('Ledger').textContent()).toContain('60,000 each exactly once');
    expect(await page.getByRole('img', { name: /^Training loss: from / }).getAttribute('aria-label')).toContain(
      `round ${run.progress.totalRounds.toLocaleString('en')}`,
    );
    await expect.poll(() => reading.missingSeqs(page, stack, id), { timeout: WAIT_MS }).toEqual([]);

    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download weights' }).click()]);
    expect(download.suggestedFilename()).toBe('digits.safetensors');
    const bytes = await reading.streamed(await download.createReadStream());
    expect(bytes.length).toBeGreaterThan(run.parameterCount * 4);
    expect(JSON.parse(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE())).toString())).toBeTypeOf('object');
  });

  it('draws a curve that is read with the arrow keys, under a policy that allows nothing inline', async () => {
    await reading.forbidInline(page);
    // An answer that was changed on the way has no address, and Chromium lets it open no socket to this machine.
    watcher.expect(/ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS/);
    const { nodes } = await stack.client.runs({ status: ['SUCCEEDED'] });
    await open(`/runs/${nodes[0]!.id}`);
    const chart = page.getByRole('img', { name: /^Training loss: from / });
    await chart.focus();
    await page.keyboard.press('Home');
    const line = card('Training loss').locator('.reading');
    const first = await line.textContent();
    expect(first).toMatch(/^[12]\.\d+ rounds? 1\b/);
    await page.keyboard.press('ArrowRight');
    expect(await line.textContent()).not.toBe(first);
    // The cursor is that of all charts.
    const rounds = async (name: string) => /rounds? .*$/.exec((await card(name).locator('.reading').textContent())!)![0];
    await expect.poll(() => rounds('Examples/s')).toBe(await rounds('Training loss'));
    await page.getByRole('button', { name: 'Training loss as a table' }).click();
    const table = page.getByRole('region', { name: 'Training loss, points' });
    expect(await table.locator('tbody tr').last().textContent()).toMatch(/^1/);
    await page.getByRole('button', { name: 'Training loss as a table' }).click();
    await reading.dragOver(page, card('Examples/s').locator('.u-over'));
    await page.getByText(/^Rounds \d+–\d+/).waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.getByText('Drag over a chart to zoom').waitFor();
    await page.getByRole('button', { name: 'Logarithmic scale' }).click();
    expect(await page.getByRole('button', { name: 'Logarithmic scale' }).getAttribute('aria-pressed')).toBe('true');
    // The line is on the canvas: some pixels have the accent colour.
    expect(await reading.accentPixels(chart)).toBeGreaterThan(200);
  });

  it('says that the api is away, and has lost nothing when it is back', async () => {
    slow = stack.slowly();
    const { id } = await stack.client.createRun({ name: 'long', length: { epochs: 60 } });
    await open(`/runs/${id}`);
    await page.locator('.run-title .status', { hasText: 'Running' }).waitFor();
    await expect.poll(() => reading.roundShown(page), { timeout: WAIT_MS }).toBeGreaterThan(20);

    // An api that hangs says as little as one that is gone: nothing is live, nothing can be asked for, nothing is nearly done.
    // Until it has caught up, or has begun anew, it may answer with 503. The page asks again.
    watcher.expect(/status of 503/);
    const pid = stack.api().child.pid!;
    process.kill(pid, 'SIGSTOP');
    try {
      await page.locator('.connection[data-state=lost]').waitFor();
      for (const name of ['Pause run', 'Workers…', 'Cancel run'])
        await expect.poll(() => page.getByRole('button', { name, exact: true }).isDisabled()).toBe(true);
      expect(await page.locator('.summary-end').textContent()).toBe('');
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await page.locator('.connection[data-state=live]').waitFor();
    await expect.poll(() => page.getByRole('button', { name: 'Pause run' }).isDisabled()).toBe(false);

    watcher.expect(/ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|WebSocket connection/);
    await stack.api().kill('SIGKILL');
    await page.locator('.connection[data-state=lost]').waitFor();
    const before = await reading.roundShown(page);
    const [, server, worker] = [fleet[1]!, fleet[0]!, fleet[2]!];
    expect(server.child.exitCode).toBeNull();
    await worker.kill('SIGKILL'); // its events are written while nobody stores them
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    await stack.startApi();
    await page.locator('.connection[data-state=live]').waitFor();
    await expect.poll(() => reading.roundShown(page), { timeout: WAIT_MS }).toBeGreaterThan(before + 20);
    await page.locator('.event', { hasText: 'worker.lost' }).first().waitFor();

    await page.getByRole('button', { name: 'Cancel run' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel run' }).click();
    await page.locator('.run-title .status', { hasText: 'Cancelled' }).waitFor();
    await expect.poll(() => reading.missingSeqs(page, stack, id), { timeout: WAIT_MS }).toEqual([]);
    // Every round that was measured is in the curve, and the page holds what a fresh page asks for.
    // The last rounds may be stored after the run is over, so the api is asked each time.
    const gaps = async (): Promise<number[]> => gapsIn(page, (await stack.client.run(id))!.progress.round);
    await expect.poll(gaps, { timeout: WAIT_MS, interval: 1_000 }).toEqual([]);
    const isAsStored = async (): Promise<boolean> => (await lastRoundOfAFresh(page)) === (await stack.client.run(id))!.progress.round;
    await expect.poll(isAsStored, { timeout: WAIT_MS, interval: 1_000 }).toBe(true);
  });

  it('says why a run failed when its server is killed', async () => {
    slow = stack.slowly();
    const { id } = await stack.client.createRun({ name: 'doomed', length: { epochs: 60 }, restarts: 0 });
    await open(`/runs/${id}`);
    await page.locator('.run-title .status', { hasText: 'Running' }).waitFor();
    await fleet[0]!.kill('SIGKILL');
    await page.locator('.run-title .status', { hasText: 'Failed' }).waitFor();
    await expect.poll(() => page.locator('.reason.bad').textContent()).toMatch(/^Parameter server 0 .*the run has no restarts/);
    await page.getByRole('navigation', { name: 'Breadcrumb' }).getByRole('link', { name: 'Runs' }).click();
    await page.locator('tr', { hasText: 'doomed' }).locator('.row-reason', { hasText: 'Parameter server 0' }).waitFor();
  });

  it('fits on a phone, in both colour schemes', async () => {
    const { nodes } = await stack.client.runs();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width: 390, height: 800 });
      await open();
      await page.locator('.row-link').first().waitFor();
      expect(await reading.sidewaysScroll(page)).toBe(0);
      await page.goto(`${stack.url}/runs/${nodes.find(({ name }) => name === 'digits')!.id}`);
      await card('Result').waitFor();
      expect(await reading.sidewaysScroll(page)).toBe(0);
      const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      const [light, dark] = ['rgb(245, 246, 248)', 'rgb(15, 18, 22)'];
      expect(await ground()).toBe(colorScheme === 'light' ? light : dark);
      // Chosen for this browser: light, dark, and as the device has it again.
      const seen: string[] = [];
      for (let i = 0; i < 3; i++) {
        await page.getByRole('button', { name: /^Colours/ }).click();
        if (i === 1) await page.reload();
        seen.push(await ground());
      }
      expect(seen).toEqual([light, dark, colorScheme === 'light' ? light : dark]);
    }
  });

  it('signs out when the key is revoked', async () => {
    watcher.expect(/401|WebSocket/);
    const { team, apiKey } = await stack.client.viewer();
    const other = await stack.client.createApiKey(team.id, 'to be revoked');
    await page.goto(`${stack.url}/#key=${other.secret}`);
    await heading('Runs').waitFor();
    expect(apiKey.id).not.toBe(other.apiKey.id);
    await stack.client.revokeApiKey(other.apiKey.id);
    await page.getByText('This key is not accepted').waitFor();
    expect(await reading.stored(page)).toEqual({ tab: null, device: null });
  });
});
