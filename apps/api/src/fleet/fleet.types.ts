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
  description: 'What a worker or server does, as far as the api hears of it.',
  valuesMap: {
    IDLE: { description: 'It is heard and has no run.' },
    BUSY: { description: 'It has a run.' },
    LOST: {
      description: 'No heartbeat for 5 s. It stays in the list for ten minutes after its last one, so that people see what is gone.',
    },
    INCOMPATIBLE: { description: 'It speaks another version of the data-plane protocol and gets no work.' },
  },
});

@ObjectType({ isAbstract: true })
abstract class FleetProcess {
  @Field({ description: 'Its id, which it makes up at its start.' })
  name!: string;
  @Field(() => WorkerStatus, { description: 'What it does, as far as the api hears of it.' })
  status!: WorkerStatus;
  @Field({ description: 'Name of the machine.' })
  host!: string;
  @Field(() => Int, { description: 'Process id on that machine.' })
  pid!: number;
  @Field({ description: 'Version of Paceline.' })
  version!: string;
  @Field(() => Int, { description: 'Version of the data-plane protocol.' })
  protocolVersion!: number;
  @Field(() => Float, { description: 'Memory that the process holds.' })
  rssBytes!: number;
  @Field({ description: 'When its last heartbeat came; there is one every second.' })
  lastSeenAt!: Date;
  @Field({ description: 'When the process was started.' })
  startedAt!: Date;
  @Field(() => ID, { nullable: true, description: 'The run that it works on, if that is a run of your team.' })
  runId!: string | null;
}

@ObjectType({ description: 'An engine that a worker can load.' })
export class WorkerEngine {
  @Field({ description: 'wasm, wasm-relaxed, cpu, tensorflow or webgpu.' })
  name!: string;
  @Field(() => String, { nullable: true, description: 'Known when it was measured.' })
  fingerprint!: string | null;
  @Field(() => Float, { nullable: true, description: 'Gradient steps of the model that this worker measured last; null before.' })
  examplesPerSecond!: number | null;
  @Field({ description: 'It is the engine of the present or last seat.' })
  isChosen!: boolean;
}

@ObjectType({ description: 'What an engine computes on, as far as it says.' })
export class WorkerDevice {
  @Field({ description: 'As the engine names it.' })
  name!: string;
  @Field({ description: 'CPU or GPU.' })
  type!: string;
  @Field(() => Float, { description: 'Memory of the device.' })
  memoryBytes!: number;
}

@ObjectType({ implements: () => [Node], description: 'A process that computes gradients.' })
export class Worker extends FleetProcess implements Node {
  id!: string;
  @Field(() => String, { nullable: true, description: 'Engine, version, instruction set, threads, flags.' })
  engine!: string | null;
  @Field(() => [WorkerEngine], { description: 'What it could compute with.' })
  engines!: WorkerEngine[];
  @Field(() => [WorkerDevice], { description: 'Devices of the engine of the present or last seat.' })
  devices!: WorkerDevice[];
}

@ObjectType({ implements: () => [Node], description: 'A parameter-server process.' })
export class Server extends FleetProcess implements Node {
  id!: string;
}
