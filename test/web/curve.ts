/** The curve of the training loss, as a page shows it. */
import type { Page } from 'playwright-core';

/** Rounds at which the loss curve misses or repeats something, as its table has its points: each continues the one before. */
export async function gapsIn(tab: Page, lastRound: number): Promise<number[]> {
  const read = await roundsRead(tab);
  const gaps = read.filter(([from], i) => from !== (i === 0 ? 1 : read[i - 1]![1] + 1)).map(([from]) => from);
  return read.at(-1)![1] === lastRound ? gaps : [...gaps, lastRound];
}

/** First and last round of each point, oldest first. */
async function roundsRead(tab: Page): Promise<[number, number][]> {
  const toggle = tab.getByRole('button', { name: 'Training loss as a table' });
  if ((await toggle.getAttribute('aria-pressed')) === 'false') await toggle.click();
  const texts = await tab.getByRole('region', { name: 'Training loss, points' }).locator('tbody th').allTextContents();
  return texts.reverse().map((text) => {
    const [from = Number.NaN, to = from] = text.replaceAll(',', '').split('–').map(Number);
    return [from, to];
  });
}

/** The last round of the curve, as a page shows it that is loaded anew. */
export async function lastRoundOfAFresh(tab: Page): Promise<number> {
  await tab.reload();
  const label = await tab.getByRole('img', { name: /^Training loss: from / }).getAttribute('aria-label');
  return Number(/round ([\d,]+)\. Arrow/.exec(label!)![1]!.replaceAll(',', ''));
}
