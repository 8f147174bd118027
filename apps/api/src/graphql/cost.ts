/**
 * What an operation may cost, counted before it runs and with its variables: one point for each field of each object that may come back, and
 * `READ_COST` for what asks the database. A list is as long as its `first`, `last` or bound says; a page that is not asked for by number
 * has its default size. Fields say what they cost by `complexity` beside their type; the rest is one point, and a list without a bound
 * `LIST_LENGTH` objects.
 *
 * A fragment is counted once, however often it is spread, so that counting is quick for every document.
 */
import {
  getArgumentValues,
  getNamedType,
  getNullableType,
  getVariableValues,
  GraphQLError,
  isAbstractType,
  isListType,
  isObjectType,
  Kind,
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type GraphQLField,
  type GraphQLNamedType,
  type GraphQLSchema,
  type OperationDefinitionNode,
  type SelectionSetNode,
} from 'graphql';
import { MAX_PAGE } from './cursor-pages.js';

export const MAX_COST = 20_000;
export const READ_COST = 10;
const LIST_LENGTH = 25;

type Arguments = Readonly<Record<string, unknown>>;
type Complexity = number | ((of: { args: Arguments; childComplexity: number }) => number);

/** The cost of a field whose list has as many objects as its page, for `complexity`. */
export function pageCost(defaultSize: number, most = MAX_PAGE) {
  return ({ args, childComplexity }: { args: Arguments; childComplexity: number }): number => {
    const asked = args['last'] ?? args['first'] ?? defaultSize;
    return READ_COST + Math.min(most, Math.max(0, Number(asked) || 0)) * childComplexity;
  };
}

/** The cost of a field that asks the database for one thing or few. */
export const readCost = ({ childComplexity }: { childComplexity: number }): number => READ_COST + childComplexity;

/** The cost of the field of a page that holds its list: the page has counted it. */
export const countedAbove = ({ childComplexity }: { childComplexity: number }): number => childComplexity;

/** @param given variables as they were sent @returns nothing when they do not fit: whoever executes the operation says so */
export function costOf(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  given: Arguments,
): number | undefined {
  const { coerced } = getVariableValues(schema, operation.variableDefinitions ?? [], given, { maxErrors: 1 });
  const root = schema.getRootType(operation.operation);
  if (!coerced || !root) return undefined;
  return new Counter(schema, document, coerced).selections(operation.selectionSet, root);
}

/** @param cost of an operation @returns the refusal, or nothing */
export function tooCostly(cost: number | undefined): GraphQLError | undefined {
  if (cost === undefined || cost <= MAX_COST) return undefined;
  const message = `The operation may cost ${Math.ceil(cost)} points and ${MAX_COST} are allowed. Ask for smaller pages (first, last, maxPoints) or fewer fields.`;
  return new GraphQLError(message, { extensions: { code: 'BAD_REQUEST', http: { status: 400 } } });
}

class Counter {
  private readonly fragments: ReadonlyMap<string, FragmentDefinitionNode>;
  private readonly counted = new Map<string, number>();

  constructor(
    private readonly schema: GraphQLSchema,
    document: DocumentNode,
    private readonly variables: Arguments,
  ) {
    const fragments = document.definitions.filter((node) => node.kind === Kind.FRAGMENT_DEFINITION);
    this.fragments = new Map(fragments.map((node) => [node.name.value, node]));
  }

  selections({ selections }: SelectionSetNode, type: GraphQLNamedType): number {
    let sum = 0;
    for (const selection of selections) {
      if (selection.kind === Kind.FIELD) sum += this.field(selection, type);
      else if (selection.kind === Kind.FRAGMENT_SPREAD) sum += this.fragment(selection.name.value);
      else sum += this.selections(selection.selectionSet, this.typeNamed(selection.typeCondition?.name.value) ?? type);
    }
    return sum;
  }

  private fragment(name: string): number {
    const known = this.counted.get(name);
    if (known !== undefined) return known;
    this.counted.set(name, 0); // validation refuses cycles; here they must only end
    const fragment = this.fragments.get(name);
    const type = this.typeNamed(fragment?.typeCondition.name.value);
    const cost = fragment && type ? this.selections(fragment.selectionSet, type) : 0;
    this.counted.set(name, cost);
    return cost;
  }

  private field(node: FieldNode, parent: GraphQLNamedType): number {
    const field = 'getFields' in parent ? (parent.getFields()[node.name.value] as GraphQLField<unknown, unknown> | undefined) : undefined;
    if (!field) return 1; // __typename and introspection
    const type = getNamedType(field.type);
    const childComplexity = node.selectionSet ? this.selections(node.selectionSet, type) : 0;
    const complexity = field.extensions['complexity'] as Complexity | undefined;
    if (typeof complexity === 'number') return complexity + childComplexity;
    if (complexity) return complexity({ args: getArgumentValues(field, node, this.variables), childComplexity });
    const isListOfObjects = isListType(getNullableType(field.type)) && (isObjectType(type) || isAbstractType(type));
    return 1 + (isListOfObjects ? LIST_LENGTH : 1) * childComplexity;
  }

  private typeNamed(name: string | undefined): GraphQLNamedType | undefined {
    return name === undefined ? undefined : this.schema.getType(name);
  }
}
