/** What the pages of the dashboard show, read from the browser. */
import type { Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import type { WebStack } from './stack.js';

export const sidewaysScroll = (tab: Page): Promise<number> =>
  tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Serves the pages of runs under a policy that allows nothing inline but images: the examples of predictions are shown as such. */
export const forbidInline = (tab: Page): Promise<unknown> =>
  tab.route(/\/runs\//, async (route) => {
    const response = await route.fetch();
    expect(response.headers()['content-security-policy']).toContain("default-src 'self'");
    await route.fulfill({
      response,
      headers: { ...response.headers(), 'content-security-policy': "default-src 'self'; img-src 'self' data:" },
    });
  });

/** Drags the mouse over the left half of a chart. */
export async function dragOver(tab: Page, area: Locator): Promise<void> {
  await area.scrollIntoViewIfNeeded();
  const box = (await area.boundingBox())!;
  await tab.mouse.move(box.x + 20, box.y + 40);
  await tab.mouse.down();
  await tab.mouse.move(box.x + box.width / 2, box.y + 40, { steps: 4 });
  await tab.mouse.up();
}

/** How many pixels of a chart have the accent colour. */
export const accentPixels = (chart: Locator): Promise<number> =>
  chart.locator('canvas').evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i + 3]! > 200 && data[i + 2]! > 180 && data[i]! < 90) count++;
    return count;
  });

/** "0–2" as [0, 1, 2], and the dash of a worker that waits for its first replica as a number that is none */
export function spread(range: string): number[] {
  if (range === '–') return [-1];
  const [from = Number.NaN, to = from] = range.split('–').map(Number);
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

export const stored = (tab: Page) =>
  tab.evaluate(() => ({ tab: sessionStorage.getItem('paceline.key'), device: localStorage.getItem('paceline.key') }));

export const roundShown = async (tab: Page): Promise<number> => {
  const text = (await tab.locator('.chart').first().locator('.reading').textContent()) ?? '';
  return Number(/([\d,]+)$/.exec(text)?.[1]?.replaceAll(',', '') ?? -1);
};

/** Numbers of events that are stored and not shown, or shown and not stored, or shown twice. */
export async function missingSeqs(tab: Page, { client }: WebStack, runId: string): Promise<number[]> {
  const seen = await tab.locator('.event').evaluateAll((lines) => lines.map((line) => Number((line as HTMLElement).dataset['seq'])));
  const stored = (await client.events(runId, { last: 100 })).nodes.map(({ seq }) => seq);
  expect(stored.length).toBeGreaterThan(3);
  expect(stored.length).toBeLessThan(100);
  return [...stored.filter((seq) => seen.filter((shown) => shown === seq).length !== 1), ...seen.filter((seq) => !stored.includes(seq))];
}

export async function streamed(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}
