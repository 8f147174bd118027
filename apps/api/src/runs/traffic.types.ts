/** Bytes of a run on the sockets of its workers. */
import { Field, Float, ObjectType } from '@nestjs/graphql';

@ObjectType({ description: 'Bytes on the sockets between a worker and its servers, headers included, as the worker has counted them.' })
export class WorkerTraffic {
  @Field({ description: 'The worker (see `workers`).' })
  workerId!: string;
  @Field(() => Float, { description: 'Bytes from the worker to the servers: gradients, mostly.' })
  toServersBytes!: number;
  @Field(() => Float, { description: 'Bytes from the servers to the worker: parameters, mostly.' })
  toWorkersBytes!: number;
  @Field(() => Float, { description: 'What the same frames to the servers would have been without a codec.' })
  denseToServersBytes!: number;
  @Field(() => Float, { description: 'What the same frames to the worker would have been without a codec.' })
  denseToWorkersBytes!: number;
}

@ObjectType({ description: 'Bytes on the sockets between the workers and servers of the newest attempt, headers included.' })
export class RunTraffic {
  @Field(() => Float, { description: 'Bytes from workers to servers: gradients, mostly.' })
  toServersBytes!: number;
  @Field(() => Float, { description: 'Bytes from servers to workers: parameters, mostly.' })
  toWorkersBytes!: number;
  @Field(() => Float, { description: 'What the same frames to servers would have been without a codec.' })
  denseToServersBytes!: number;
  @Field(() => Float, { description: 'What the same frames to workers would have been without a codec.' })
  denseToWorkersBytes!: number;
  @Field(() => [WorkerTraffic], { description: 'The newest 256 workers, one by one.' })
  workers!: WorkerTraffic[];
}
