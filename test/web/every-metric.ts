/** The charts of a run that measures much, validates while it trains, and lowers its rate. On a stack with a server and a worker. */
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import type { WebStack } from './stack.js';

export async function everyMetric(page: Page, stack: WebStack): Promise<void> {
  const { id } = await stack.client.createRun({
    name: 'flowers',
    dataset: 'iris',
    model: 'mlp',
    replicas: 1,
    globalBatch: 30,
    length: { rounds: 60 },
    metrics: ['accuracy', 'f1Score', 'auc', 'confusionMatrix'],
    optimizer: { name: 'sgd', learningRate: 1 },
    validation: { everyRounds: 5 },
    // No accuracy rises by 1: the first stays the best, and the rate falls.
    reduceLROnPlateau: { metric: 'val_accuracy', patience: 4, minDelta: 1, factor: 0.5 },
  });
  await page.goto(`${stack.url}/runs/${id}#key=${stack.key}`);
  await page.locator('.run-title .status', { hasText: 'Succeeded' }).waitFor();
  const card = (name: string) => page.getByRole('region', { name, exact: true });
  const label = (name: string) => page.getByRole('img', { name: new RegExp(`^${name}: from `) }).getAttribute('aria-label');
  for (const [name, better] of [
    ['Loss', 'Lower'],
    ['F1 score', 'Higher'],
    ['AUC', 'Higher'],
  ] as const)
    await expect
      .poll(() => label(name))
      .toMatch(new RegExp(`; validation from .* at round 5 to .* at round 60\\. Arrow keys read single points\\. ${better} is better\\.`));
  await expect.poll(() => label('Learning rate')).toContain('Round 25: the learning rate was lowered to 0.5 of what it was.');
  await expect.poll(() => label('Accuracy')).toContain(': the best val_accuracy.');
  await page.getByRole('group', { name: 'Metrics that are drawn' }).getByRole('button', { name: 'AUC' }).click();
  expect(await card('AUC').count()).toBe(0);
  expect(await card('Result').getByRole('link', { name: 'under Predictions' }).getAttribute('href')).toBe('#predictions');
}
