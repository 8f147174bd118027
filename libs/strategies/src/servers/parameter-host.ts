/** A parameter server: keeps its ranges of the models of one coordinator at a time. Whoever speaks to it has proved that it knows the secret. */
import { COORDINATOR, TaskError, type Content, type Handler, type Received } from '@paceline/collectives';
import {
  CODES,
  bytesOf,
  type Begin,
  type CommitShard,
  type JsonNumber,
  type OfSession,
  type OpenShard,
  type Sums,
  type Train,
  type Write,
} from './messages.js';
import { ServedShard } from './served-shard.js';

export class ParameterHost {
  private session: string | undefined;
  private readonly shards = new Map<number, ServedShard>();

  /** What answers a task. */
  handlerOf(from: number): Handler {
    return async (name, received) => {
      const isCoordinator = from === COORDINATOR;
      if (isCoordinator && name === 'begin') return this.begin(received.body as Begin);
      const body = received.body as OfSession;
      if (!isCoordinator && body.session !== this.session)
        throw new TaskError(CODES.session, 'the parameter server serves another session, or was started again');
      return isCoordinator ? this.coordinated(name, received) : this.worked(name, received);
    };
  }

  /** The coordinator has gone: nobody can read its models any more. */
  left(from: number): void {
    if (from === COORDINATOR) this.forget();
  }

  get bytes(): { readonly parameterBytes: number; readonly slotBytes: number } {
    const all = [...this.shards.values()];
    return {
      parameterBytes: all.reduce((sum, shard) => sum + shard.parameterBytes, 0),
      slotBytes: all.reduce((sum, shard) => sum + shard.slotBytes, 0),
    };
  }

  private begin({ session }: Begin): Content {
    this.forget();
    this.session = session;
    return {};
  }

  private forget(): void {
    this.session = undefined;
    this.shards.clear();
  }

  private shardOf({ model }: { readonly model: number }): ServedShard {
    const shard = this.shards.get(model);
    if (shard) return shard;
    throw new TaskError(
      CODES.session,
      `there is no model ${model} at this parameter server: it was started again, or another coordinator came`,
    );
  }

  private coordinated(name: string, { body, parts }: Received): Content {
    switch (name) {
      case 'open': {
        const { model, plan } = body as OpenShard;
        this.shards.set(model, new ServedShard(plan));
        return {};
      }
      case 'close':
        this.shards.delete((body as OpenShard).model);
        return {};
      case 'train':
        this.shardOf(body as Train).train((body as Train).ranges);
        return {};
      case 'write': {
        const { hasParameters, hasSlots, steps } = body as Write;
        const shard = this.shardOf(body as Write);
        const written = [...(hasParameters ? [shard.values()] : []), ...(hasSlots ? shard.slotValues() : [])];
        written.forEach((values, i) => bytesOf(values).set(parts[i]!));
        shard.written(steps ?? shard.steps);
        return { body: standing(shard) };
      }
      case 'slots':
        return {
          parts: this.shardOf(body as OpenShard)
            .slotValues()
            .map(copied),
        };
      case 'commit': {
        const commit = body as CommitShard;
        const shard = this.shardOf(commit);
        shard.commit({ ...commit, rate: Number(commit.rate) });
        return { body: standing(shard) };
      }
      case 'drop':
        this.shardOf(body as CommitShard).drop((body as CommitShard).round);
        return {};
      default:
        return this.worked(name, { body, parts });
    }
  }

  private worked(name: string, { body, parts }: Received): Content {
    const shard = this.shardOf(body as OfSession);
    switch (name) {
      case 'read':
        return { body: standing(shard), parts: [shard.published()] };
      case 'sums': {
        const { round, nodes } = body as Sums;
        shard.take(round, nodes, parts);
        return {};
      }
      case 'push':
        shard.push(parts[0]!, Number((body as { readonly rate: JsonNumber }).rate));
        return { body: standing(shard) };
      default:
        throw new TaskError('BAD_MESSAGE', `a parameter server knows no request "${name}"`);
    }
  }
}

const standing = ({ generation, steps }: ServedShard): { generation: number; steps: number } => ({ generation, steps });

/** What is sent must not change while it leaves, and an update may come meanwhile. */
const copied = (values: Float32Array): Uint8Array => bytesOf(values.slice());
