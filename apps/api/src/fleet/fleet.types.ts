import { Field, Float, ID, Int, ObjectType, registerEnumType } from '@nestjs/graphql';
import { Node } from '../graphql/node.type.js';

export enum WorkerStatus {
  IDLE = 'IDLE',
  BUSY = 'BUSY',
  LOST = 'LOST',
  INCOMPATIBLE = 'INCOMPATIBLE',
}
registerEnumType(WorkerStatus, {
  name: 'WorkerStatus',
  valuesMap: {
    LOST: { description: 'No heartbeat for 5 s.' },
    INCOMPATIBLE: { description: 'It speaks another version of the data-plane protocol and gets no work.' },
  },
});

@ObjectType({ isAbstract: true })
abstract class FleetProcess {
  @Field()
  name!: string;
  @Field(() => WorkerStatus)
  status!: WorkerStatus;
  @Field()
  host!: string;
  @Field(() => Int)
  pid!: number;
  @Field()
  version!: string;
  @Field(() => Int)
  protocolVersion!: number;
  @Field(() => Float)
  rssBytes!: number;
  @Field()
  lastSeenAt!: Date;
  @Field()
  startedAt!: Date;
  @Field(() => ID, { nullable: true, description: 'The run that it works on, if that is a run of your team.' })
  runId!: string | null;
}

@ObjectType({ implements: () => [Node], description: 'A process that computes gradients.' })
export class Worker extends FleetProcess implements Node {
  id!: string;
  @Field(() => String, { nullable: true, description: 'Engine, version, instruction set, threads, flags.' })
  engine!: string | null;
}

@ObjectType({ implements: () => [Node], description: 'A parameter-server process.' })
export class Server extends FleetProcess implements Node {
  id!: string;
}
