/**
 * What the page of a run in the dashboard asks of the api while somebody looks at it, with the dashboard's own documents: the state of the run every second and
 * after each event, its events and metrics by subscription, and the history of its metrics every 15 s. Nothing is drawn.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { ApiConnection } from '@paceline/client';

const EVERY_MS = 1_000;
/** After an event it asks again, but not sooner than this. */
const LEAST_MS = 200;
const HISTORY_EVERY_MS = 15_000;
const EVENTS = 100;
const POINTS = 300;
const SOCKET = { pingEveryMs: 5_000, pongDeadlineMs: 4_000, connectTimeoutMs: 10_000 };

const DEFINITIONS = readFileSync(new URL('../apps/dashboard/src/graphql/operations.graphql', import.meta.url), 'utf8')
  .split(/^(?=(?:query|mutation|subscription|fragment) )/mu)
  .slice(1);

/**
 * An operation or a fragment by its name, with the fragments that it spreads.
 * @param {string} name
 * @returns {Map<string, string>} text by name
 */
function withFragments(name) {
  const text = DEFINITIONS.find((each) => each.split(/[ ({]/u)[1] === name);
  if (text === undefined) throw new Error(`the dashboard has no document ${name}`);
  const spread = [...text.matchAll(/\.\.\.(?<fragment>[A-Z]\w*)/gu)].flatMap(({ groups }) => [
    ...withFragments(groups?.['fragment'] ?? ''),
  ]);
  return new Map([[name, text], ...spread]);
}

/** @typedef {{ run: { status: string, statusReason: string | null, progress: { round: number } } }} RunAnswer */
/** @typedef {{ runMetrics: { round: number } }} MetricsRow */
/** @typedef {{ run: { metrics: { points: { round: number }[] }[] } }} History */
/** @typedef {{ runEvents: { seq: number } }} EventRow */
/** @typedef {{ run: { events: { edges: { node: { seq: number } }[] } } }} EventsPage */

/**
 * @template Result
 * @param {string} name
 * @returns {import('@paceline/client').TypedDocument<Result, object>}
 */
const documentOf = (name) => /** @type {any} */ ([...withFragments(name).values()].join('\n'));
/** @type {import('@paceline/client').TypedDocument<RunAnswer, object>} */
const RUN = documentOf('Run');
/** @type {import('@paceline/client').TypedDocument<EventsPage, object>} */
const EVENTS_PAGE = documentOf('Events');
/** @type {import('@paceline/client').TypedDocument<History, object>} */
const METRICS = documentOf('Metrics');
/** @type {import('@paceline/client').TypedDocument<EventRow, object>} */
const RUN_EVENTS = documentOf('RunEvents');
/** @type {import('@paceline/client').TypedDocument<MetricsRow, object>} */
const RUN_METRICS = documentOf('RunMetrics');

/** The page of one run, from `open` to `close`. */
export class OpenPage {
  /** The run as it was answered last. @type {RunAnswer['run'] | undefined} */
  run;
  answers = 0;
  rows = 0;
  events = 0;
  /** @type {Error | undefined} */
  #failure;
  #closing = new AbortController();
  #nudge = new AbortController();

  /** @param {{ url: string, key: string }} api @param {string} id */
  constructor({ url, key }, id) {
    this.id = id;
    this.connection = new ApiConnection({ url, apiKey: key, holdsAnswers: true, ...SOCKET });
    this.following = Promise.all(
      [this.#poll(), this.#followEvents(), this.#followMetrics()].map((part) =>
        part.catch((/** @type {unknown} */ error) => {
          if (!this.#closing.signal.aborted) this.#failure ??= error instanceof Error ? error : new Error(String(error));
        }),
      ),
    );
  }

  /** @throws what a request or a subscription has failed with */
  check() {
    if (this.#failure) throw this.#failure;
  }

  async #poll() {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      this.#nudge = new AbortController();
      const early = this.#nudge.signal;
      this.run = (await this.connection.request(RUN, { id: this.id }, { signal })).run;
      this.answers++;
      await pause(LEAST_MS, undefined, { signal });
      await pause(EVERY_MS, undefined, { signal: AbortSignal.any([signal, early]) }).catch(() => undefined); // it is nudged, or ends with the loop
    }
  }

  async #followEvents() {
    const { signal } = this.#closing;
    const { run } = await this.connection.request(EVENTS_PAGE, { id: this.id, last: EVENTS }, { signal });
    const afterSeq = run.events.edges.at(-1)?.node.seq ?? 0;
    for await (const _event of this.connection.subscribe(RUN_EVENTS, { runId: this.id, afterSeq }, signal)) {
      this.events++;
      this.#nudge.abort();
    }
  }

  async #followMetrics() {
    const { signal } = this.#closing;
    const history = () => {
      const variables = { id: this.id, names: ['loss', 'accuracy', 'examplesPerSecond'], maxPoints: POINTS };
      return this.connection.request(METRICS, variables, { signal });
    };
    const known = (await history()).run.metrics.flatMap(({ points }) => points.map(({ round }) => round));
    let askedAtMs = performance.now();
    for await (const _row of this.connection.subscribe(RUN_METRICS, { runId: this.id, afterRound: Math.max(-1, ...known) }, signal)) {
      this.rows++;
      if (performance.now() - askedAtMs < HISTORY_EVERY_MS) continue;
      askedAtMs = performance.now();
      await history();
    }
  }

  async close() {
    this.#closing.abort();
    await this.following;
    await this.connection.close();
    this.check();
  }
}
