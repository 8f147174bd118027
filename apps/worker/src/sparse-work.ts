/**
 * The work of a compute thread whose tables are exchanged by rows. A step or a part of an evaluation needs rows that may not be here: it waits in line until
 * they have come, and what comes after it waits behind it.
 *
 *   message ──> line ── rows are here, or nobody wants it any more ──> done
 *                 └── rows are missing: asked for, once
 *
 * While a step waits for its rows, the loader reads the batch after it, so the rows of that one are asked for before the step is computed; where it was not
 * read by then, when the step is done. Servers answer as soon as they have made them.
 */
import type { Batch, Engine } from '@paceline/engine';
import { spans } from '@paceline/exchange';
import type { BatchLoader } from './batch-loader.js';
import type { FromCompute, ToCompute } from './compute-protocol.js';
import type { PartRange } from './gradient-memory.js';
import type { StepOutputs } from './replica-steps.js';
import type { GroupBytes, Ids, TableRows } from './table-rows.js';

interface Turn {
  /** False while rows are missing. */
  isReady(): boolean;
  run(): void;
}

interface SparseOptions {
  readonly tables: TableRows;
  readonly loader: BatchLoader;
  readonly engine: Pick<Engine, 'evaluate' | 'metricNames' | 'load'>;
  /** Generations of the worker's vector, by their number mod 2. */
  readonly vectors: readonly Float32Array[];
  readonly outputs: Pick<StepOutputs, 'isObsolete' | 'progress'>;
  isStopping(): boolean;
  send(message: FromCompute): void;
}

type Run = (round: number, replicas: readonly number[]) => void;

export class SparseWork {
  private readonly line: Turn[] = [];
  /** The ids of the step in progress, by replica. */
  private ids = new Map<number, Ids>();

  constructor(private readonly options: SparseOptions) {}

  /** True for messages that are its own. @param run computes replicas with what the engine has loaded */
  takes(message: ToCompute, run: Run): boolean {
    switch (message.kind) {
      case 'step':
        this.line.push(this.step(message.round, message.replicas, run));
        break;
      case 'evaluate':
        this.line.push(...this.evaluation(message.generation, message.blocks));
        break;
      case 'rows':
        this.options.tables.arrived(message.generation, message.group, message.rows);
        break;
      default:
        return false;
    }
    while (this.line[0]?.isReady()) this.line.shift()!.run();
    return true;
  }

  // ---- for ReplicaSteps, in place of the loader ----

  take(round: number, replica: number): Batch[] {
    return this.options.loader.take(round, replica).map((batch) => this.options.tables.placed(batch));
  }

  release(round: number, replica: number): void {
    this.options.loader.release(round, replica);
  }

  /** What the node of replicas [lo, hi) sends of the tables. */
  gradients(lo: number, hi: number, pieces: readonly Float32Array[], parts: readonly PartRange[]): GroupBytes[] {
    const { tables } = this.options;
    const own = Array.from({ length: hi - lo }, (_, i) => this.ids.get(lo + i)!);
    return tables.gradients(
      own.length === 1 ? own[0]! : tables.union(own),
      pieces.map((values, i) => ({ offset: parts[i]!.offset, values })),
    );
  }

  // ---- inside ----

  private step(round: number, replicas: readonly number[], run: Run): Turn {
    const { loader, tables, outputs } = this.options;
    let ids: Map<number, Ids> | undefined;
    let all: Ids | undefined;
    return {
      isReady: () => {
        if (outputs.isObsolete(round)) return true;
        if (!ids) {
          ids = this.idsOf(round, replicas);
          loader.prefetch(round + 1, replicas);
        }
        all ??= tables.union([...ids.values()]);
        return tables.has(round, all);
      },
      run: () => {
        if (outputs.isObsolete(round)) return;
        this.ids = ids!;
        this.load(round, all!);
        loader.forget(round);
        tables.forgetBelow(round);
        loader.prefetch(round + 1, replicas);
        const isAsked = this.askAhead(round + 1, replicas);
        run(round, replicas);
        if (isAsked) return;
        loader.prefetch(round + 1, replicas); // what had no free slot
        this.askAhead(round + 1, replicas);
      },
    };
  }

  /** A batch that the loader has not read yet is not waited for: its rows are asked for when its turn has come. @returns false then */
  private askAhead(round: number, replicas: readonly number[]): boolean {
    const { loader, tables } = this.options;
    if (round >= loader.plan.totalRounds) return true;
    const areRead = replicas.every((replica) => loader.plan.count(round, replica) === 0 || loader.isReady(round, replica));
    if (areRead) tables.has(round, tables.union([...this.idsOf(round, replicas).values()]));
    return areRead;
  }

  private idsOf(round: number, replicas: readonly number[]): Map<number, Ids> {
    const { loader, tables } = this.options;
    return new Map(replicas.map((replica) => [replica, tables.idsOf(loader.take(round, replica))]));
  }

  private load(generation: number, ids: Ids): void {
    const { tables, vectors, engine } = this.options;
    const sinceMs = spans.now();
    const vector = vectors[generation & 1]!;
    tables.lay(generation, ids, vector);
    engine.load(vector);
    spans.add('load parameters', sinceMs);
  }

  private evaluation(generation: number, blocks: readonly { from: number; to: number }[]): Turn[] {
    const { engine, loader } = this.options;
    const most = loader.evaluationExamples;
    let [sums, examples] = [engine.metricNames.map(() => 0), 0];
    return blocks.flatMap((block) =>
      Array.from({ length: Math.ceil((block.to - block.from) / most) }, (_, i): Turn => {
        const from = block.from + i * most;
        const to = Math.min(from + most, block.to);
        return this.part(generation, from, to, (count, own) => {
          examples += count;
          own.forEach((value, m) => (sums[m]! += value));
          if (to < block.to) return;
          this.options.send({ kind: 'evaluated', generation, from: block.from, to: block.to, examples, sums });
          [sums, examples] = [engine.metricNames.map(() => 0), 0];
        });
      }),
    );
  }

  private part(generation: number, from: number, to: number, measured: (count: number, sums: readonly number[]) => void): Turn {
    const { engine, loader, tables, outputs } = this.options;
    let ids: Ids | undefined;
    return {
      isReady: () => {
        if (outputs.isObsolete(generation)) return true;
        ids ??= tables.idsOf([loader.takeEvaluation(from, to)]);
        return tables.has(generation, ids);
      },
      run: () => {
        // Nobody counts it, and the member has to know that it is not under way any more.
        if (!ids || outputs.isObsolete(generation)) {
          loader.releaseEvaluation(from, to);
          return measured(0, []);
        }
        this.load(generation, ids);
        const result = engine.evaluate(tables.placed(loader.takeEvaluation(from, to)));
        loader.releaseEvaluation(from, to);
        tables.forget(generation);
        outputs.progress();
        measured(result.count, result.metricSums);
      },
    };
  }
}
