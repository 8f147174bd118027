import { expect, it } from 'vitest';
import { cardMarkdown, cardOf, modelCardSchema, type CardFacts } from './model-card.js';
import { trained } from './trained-model.fixture.js';

const cardWith = async (evaluation: CardFacts['evaluation']) => {
  const { facts } = await trained('mlp');
  return cardMarkdown(modelCardSchema.parse(cardOf(Object.assign({}, facts, { evaluation }), 'a'.repeat(64))));
};

it('says on which rows a model was measured, and claims no others', async () => {
  const measured = { examples: 100, loss: 0.5, accuracy: 0.9 };
  expect(await cardWith({ ...measured, split: 'test' })).toMatch(
    /evaluated on the test split, which it was not trained on\.[^]*Loss on the test split \| 0\.5/,
  );
  const onTraining = await cardWith({ ...measured, split: 'train' });
  expect(onTraining).toMatch(
    /evaluated on the rows that it was trained on: how well it does on others was not measured\.[^]*Accuracy on the train split/,
  );
  expect(onTraining).not.toContain('not trained on');
  expect(await cardWith(measured)).not.toContain('not trained on');
  expect(await cardWith(null)).toContain('They were not evaluated.');
});

it('shows the best and the last validation side by side, and which of them it is', async () => {
  const { facts } = await trained('mlp');
  const at = (round: number, loss: number) => ({ round, values: { accuracy: 1 - loss, loss } });
  const cardOfRound = (round: number, best: number, last: number) => {
    const validations = { metric: 'val_loss', better: 'lower' as const, best: at(best, 0.25), last: at(last, 0.5) };
    return cardMarkdown(modelCardSchema.parse(cardOf(Object.assign({}, facts, { round, validations }), 'a'.repeat(64))));
  };
  const restored = cardOfRound(40, 40, 55);
  expect(restored).toContain('the lowest `val_loss`');
  expect(restored).toContain(
    '| | Best, round 40 (this model) | Last, round 55 |\n|---|---|---|\n| loss | 0.25 | 0.5 |\n| accuracy | 0.75 | 0.5 |\n',
  );
  expect(cardOfRound(55, 40, 55)).toContain('| | Best, round 40 | Last, round 55 (this model) |');
  expect(cardOfRound(50, 50, 50)).toContain('| | Best and last, round 50 (this model) |\n');
  expect(cardOfRound(30, 40, 55)).toContain('This model has the weights of round 30.');
});
