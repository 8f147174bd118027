/**
 * The layout: every variable of a model at a fixed place in one flat float32 vector, cut into chunks.
 *
 *   [ variable | variable | … ] [ state variable | … ]
 *   └─ trainable section ─────┘ └─ state section ────┘      no padding; trainable chunks come first, then state chunks
 *
 * The chunk grid is a function of the model alone, never of the number of servers: a shard is a set of whole chunks, and
 * what is summed per chunk gives the same bits however many servers there are (docs/protocol.md §6.2).
 */
import { LIMITS, type ModelDescription, type Section } from '@paceline/spec';
import { LearningError } from './errors.js';

/** A chunk of a large model: 1 MiB. */
export const LARGEST_CHUNK_FLOATS = 262_144;
/** Below 64 KiB the cost per frame would be more than that of its bytes. */
export const SMALLEST_CHUNK_FLOATS = 16_384;
/** Enough chunks to overlap sending, summing and updating, also in small models. */
const WANTED_CHUNKS = 16;
const CHUNK_MULTIPLE_FLOATS = 1024;
const MAX_DIMENSIONS = 8;

export interface LayoutVariable {
  readonly path: string;
  readonly shape: readonly number[];
  readonly section: Section;
  /** First element in the flat vector. */
  readonly offset: number;
  /** Elements. */
  readonly length: number;
  /** It is exchanged by rows; which input of the row format names them. */
  readonly rows?: { readonly input: number } | undefined;
}

/** A contiguous part of one section: the unit of transfer, summation and update. */
export interface Chunk {
  readonly index: number;
  readonly section: Section;
  /** First element in the flat vector. */
  readonly offset: number;
  /** Elements; only the last chunk of a section is shorter than the others. */
  readonly length: number;
  /** Whole rows of a table that is exchanged by rows: index of the variable. */
  readonly table?: number;
}

export interface Layout {
  /** In the order of the flat vector. */
  readonly variables: readonly LayoutVariable[];
  /** Float32 elements. */
  readonly trainableLength: number;
  readonly stateLength: number;
  readonly totalLength: number;
  readonly chunks: readonly Chunk[];
}

/** Places some of the variables of a model by themselves, such as those of a stage. @throws LearningError LAYOUT_* */
export function layoutOfPart({ variables }: Pick<ModelDescription, 'variables'>, paths: readonly string[]): Layout {
  const wanted = new Set(paths);
  const own = variables.filter(({ path }) => wanted.has(path));
  const countOf = (section: Section): number =>
    own.reduce((sum, variable) => sum + (variable.section === section ? variable.shape.reduce((a, b) => a * b, 1) : 0), 0);
  return createLayout({ variables: own, parameterCount: countOf('trainable'), stateCount: countOf('state') });
}

/**
 * Places the variables of a model. The description is checked as hostile input: it travels in job payloads.
 * @throws LearningError LAYOUT_*
 */
export function createLayout(description: Pick<ModelDescription, 'variables' | 'parameterCount' | 'stateCount'>): Layout {
  if (description.variables.length > LIMITS.modelVariables)
    throw new LearningError(
      'LAYOUT_TOO_MANY',
      `${description.variables.length} variables, more than ${LIMITS.modelVariables}`,
      'variables',
    );
  const variables: LayoutVariable[] = [];
  const paths = new Set<string>();
  let trainableLength = 0;
  let offset = 0;
  for (const { path, shape, section, rows } of description.variables) {
    const field = `variables[${JSON.stringify(path.slice(0, 300))}]`;
    if (paths.has(path)) throw new LearningError('LAYOUT_DUPLICATE', 'this path appears twice', field);
    paths.add(path);
    if (section === 'trainable' && offset > trainableLength)
      throw new LearningError('LAYOUT_ORDER', 'a trainable variable after the state', field);
    const length = elementsOf(shape, field);
    variables.push(Object.assign({ path, shape: [...shape], section, offset, length }, rows && { rows }));
    offset += length;
    if (offset > LIMITS.modelParameters) throw new LearningError('LAYOUT_TOO_LARGE', `more than ${LIMITS.modelParameters} elements`, field);
    if (section === 'trainable') trainableLength = offset;
  }
  const stateLength = offset - trainableLength;
  if (trainableLength === 0) throw new LearningError('LAYOUT_EMPTY', 'none is trainable', 'variables');
  checkCount('parameterCount', description.parameterCount, trainableLength);
  checkCount('stateCount', description.stateCount, stateLength);
  const chunkFloats = chunkLength(offset);
  const chunks: Chunk[] = [];
  let from = 0;
  for (const [table, { rows, shape, offset: start, length }] of variables.entries()) {
    if (!rows) continue;
    cut(chunks, 'trainable', from, start, chunkFloats);
    cut(chunks, 'trainable', start, start + length, wholeRows(shape, chunkFloats), table);
    from = start + length;
  }
  cut(chunks, 'trainable', from, trainableLength, chunkFloats);
  cut(chunks, 'state', trainableLength, offset, chunkFloats);
  return { variables, trainableLength, stateLength, totalLength: offset, chunks };
}

/** Elements of a full chunk in a model of `totalLength` elements. */
export function chunkLength(totalLength: number): number {
  const wanted = Math.floor(totalLength / WANTED_CHUNKS / CHUNK_MULTIPLE_FLOATS) * CHUNK_MULTIPLE_FLOATS;
  return Math.min(LARGEST_CHUNK_FLOATS, Math.max(SMALLEST_CHUNK_FLOATS, wanted));
}

function elementsOf(shape: readonly number[], field: string): number {
  if (shape.length > MAX_DIMENSIONS) throw new LearningError('LAYOUT_SHAPE', `${shape.length} dimensions`, field);
  let length = 1;
  for (const dimension of shape) {
    if (!Number.isSafeInteger(dimension) || dimension < 1) throw new LearningError('LAYOUT_SHAPE', `dimension ${dimension}`, field);
    length *= dimension;
    // Checked at every step: the product of eight large dimensions would not be exact any more.
    if (length > LIMITS.modelParameters) throw new LearningError('LAYOUT_TOO_LARGE', `more than ${LIMITS.modelParameters} elements`, field);
  }
  return length;
}

function checkCount(field: 'parameterCount' | 'stateCount', said: number, counted: number): void {
  if (said !== counted) throw new LearningError('LAYOUT_COUNT', `${said} is said, the variables have ${counted}`, field);
}

function cut(chunks: Chunk[], section: Section, from: number, to: number, chunkFloats: number, table?: number): void {
  for (let offset = from; offset < to; offset += chunkFloats) {
    const chunk = { index: chunks.length, section, offset, length: Math.min(chunkFloats, to - offset) };
    chunks.push(table === undefined ? chunk : { ...chunk, table });
  }
}

/** Elements of a chunk of a table: no row lies in two. */
const wholeRows = ([, width = 1]: readonly number[], chunkFloats: number): number => Math.max(1, Math.floor(chunkFloats / width)) * width;

/**
 * Indices of the chunks that server `index` of `servers` owns, ascending: a contiguous, balanced range of the trainable
 * chunks and one of the state chunks. Every chunk has exactly one owner; with more servers than chunks some own none.
 */
export function shardChunks(layout: Layout, servers: number, index: number): number[] {
  if (!Number.isSafeInteger(servers) || servers < 1 || !Number.isSafeInteger(index) || index < 0 || index >= servers) {
    throw new RangeError(`server ${index} of ${servers}`);
  }
  const trainable = layout.chunks.filter((chunk) => chunk.section === 'trainable').length;
  const state = layout.chunks.length - trainable;
  const owned: number[] = [];
  for (const [first, count] of [
    [0, trainable],
    [trainable, state],
  ] as const) {
    const to = Math.floor(((index + 1) * count) / servers);
    for (let i = Math.floor((index * count) / servers); i < to; i++) owned.push(first + i);
  }
  return owned;
}
