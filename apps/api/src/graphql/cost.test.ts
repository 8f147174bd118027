import { buildSchema, getOperationAST, parse, type GraphQLObjectType } from 'graphql';
import { expect, it } from 'vitest';
import { costOf, countedAbove, pageCost, READ_COST, readCost, tooCostly } from './cost.js';

const schema = buildSchema(`
  type Query { runs(first: Int = 20, last: Int): Page! run: Run workers: [Run!]! }
  type Page { edges: [Edge!]! totalCount: Int! }
  type Edge { node: Run! }
  type Run { id: ID! tags: [String!]! events(first: Int = 50): Page! ledger: Run }
`);
const complexityOf = (type: string, field: string, complexity: unknown): void => {
  (schema.getType(type) as GraphQLObjectType).getFields()[field]!.extensions = { complexity } as never;
};
complexityOf('Query', 'runs', pageCost(20));
complexityOf('Run', 'events', pageCost(50));
complexityOf('Run', 'ledger', readCost);
complexityOf('Page', 'edges', countedAbove);

function operation(source: string, variables: object = {}) {
  const document = parse(source);
  return [schema, document, getOperationAST(document)!, variables as Record<string, unknown>] as const;
}
const cost = (source: string, variables?: object) => costOf(...operation(source, variables));

it('counts a page by the value of its variable, its default and its bound', () => {
  const page = 'query($n: Int) { runs(first: $n) { edges { node { id } } } }'; // node and id
  expect(cost(page, { n: 7 })).toBe(READ_COST + 7 * 2);
  expect(cost(page)).toBe(READ_COST + 20 * 2);
  expect(cost('query($n: Int = 3) { runs(first: $n) { edges { node { id } } } }')).toBe(READ_COST + 3 * 2);
  expect(cost(page, { n: 1_000_000 })).toBe(READ_COST + 100 * 2);
  expect(cost(page, { n: -5 })).toBe(READ_COST);
  expect(cost(page, { n: null })).toBe(READ_COST + 20 * 2);
  expect(cost('{ runs(first: 90, last: 4) { totalCount } }')).toBe(READ_COST + 4);
});

it('pages of pages multiply, and reads count as such, so that one with variables is refused like one with numbers', () => {
  const nested = (n: string) => `{ runs(first: ${n}) { edges { node { events(first: ${n}) { edges { node { id } } } ledger { id } } } } }`;
  const numbers = cost(nested('100'));
  expect(numbers).toBe(READ_COST + 100 * (1 + (READ_COST + 100 * 2) + (READ_COST + 1)));
  const variables = operation(`query($n: Int)${nested('$n')}`, { n: 100 });
  expect(costOf(...variables)).toBe(numbers);
  expect(tooCostly(costOf(...variables))?.message).toContain(`${numbers} points`);
  expect(tooCostly(costOf(...variables))?.extensions).toMatchObject({ code: 'BAD_REQUEST' });
  expect(tooCostly(costOf(...operation(nested('5'))))).toBeUndefined();
});

it('counts lists of objects without a bound as some, and lists of numbers or words as one', () => {
  expect(cost('{ workers { id } }')).toBe(1 + 25);
  expect(cost('{ run { tags } }')).toBe(2);
});

it('counts a bomb of fragments without going through it', () => {
  const fragments = Array.from({ length: 60 }, (_, i) => `fragment F${i} on Run { ledger { ...F${i + 1} } l: ledger { ...F${i + 1} } }`);
  const bomb = `{ run { ...F0 } } ${fragments.join(' ')} fragment F60 on Run { id }`;
  expect(cost(bomb)).toBeGreaterThan(2 ** 60); // one by one they would take for ever
});

it('leaves variables that do not fit to the execution', () => {
  expect(cost('query($n: Int!) { runs(first: $n) { totalCount } }')).toBeUndefined();
});
