/**
 * Checks by hand of the messages that come in every round and with every heartbeat: they take what the schema takes, and cost a tenth of it. Whatever does not pass
 * is left to the schema, which says what is wrong.
 */
type Fields = Readonly<Record<string, unknown>>;

const LARGEST_U32 = 2 ** 32 - 1;
const LARGEST_COUNT = 2 ** 40;

const TRAFFIC = ['toServersBytes', 'toWorkersBytes', 'denseToServersBytes', 'denseToWorkersBytes'];

const isWhole = (value: unknown, most: number): boolean => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most;

function hasSums({ sums }: Fields, most: number): boolean {
  return Array.isArray(sums) && sums.length <= most && sums.every((value) => Number.isFinite(value));
}

function isTraffic(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const counts = value as Fields;
  return Object.keys(counts).length === TRAFFIC.length && TRAFFIC.every((name) => isWhole(counts[name], Number.MAX_SAFE_INTEGER));
}

/** With how many fields it comes, and whether they are as the schema says. Beyond these it goes to the schema. */
const CHECKS: Readonly<Record<string, (value: Fields, fields: number, mostSums: number) => boolean>> = {
  heartbeat: ({ progress, rests, traffic }, fields) =>
    isWhole(progress, LARGEST_COUNT) &&
    (fields === 2 || typeof rests === 'boolean') &&
    (fields <= 3 ? traffic === undefined : fields === 4 && isTraffic(traffic)),
  reduced: ({ round }, fields) => fields === 2 && isWhole(round, LARGEST_U32),
  credit: ({ round, base }, fields) => fields === 3 && isWhole(round, LARGEST_U32) && isWhole(base, LARGEST_COUNT),
  commit: ({ round, view, term }, fields) =>
    fields === 4 && isWhole(round, LARGEST_U32) && isWhole(view, LARGEST_U32) && isWhole(term, LARGEST_U32),
  contribution: (value, fields, mostSums) =>
    fields === 5 &&
    isWhole(value['round'], LARGEST_U32) &&
    isWhole(value['replica'], Number.MAX_SAFE_INTEGER) &&
    isWhole(value['examples'], LARGEST_COUNT) &&
    hasSums(value, mostSums),
};

/** Whether it is one of these, and as its schema says. */
export function isFrequent(value: unknown, mostSums: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const fields = value as Fields;
  const { type } = fields;
  if (typeof type !== 'string' || !Object.hasOwn(CHECKS, type)) return false;
  return CHECKS[type]!(fields, Object.keys(fields).length, mostSums);
}
