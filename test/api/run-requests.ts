/** What tests ask of a run over GraphQL, and how a scripted coordinator pauses. */
import { checkpointWritten, paused, type Coordinator, type ScriptedFleet } from './scripted-fleet.js';
import { until, untilStatus, type ControlPlane, type GraphqlReply } from './services.js';

const SUCCESS =
  '__typename ... on ChangeRunSuccess { run { status attempt } } ... on Conflict { message } ... on InvalidInput { message issues { path } }';

/** Tests look into answers by hand; a wrong path fails them. */
type Answer = GraphqlReply['data'];

export class RunRequests {
  constructor(
    private readonly plane: ControlPlane,
    private readonly fleet: ScriptedFleet,
  ) {}

  /** @param rest more arguments, as `, rounds: 5` */
  async ask(request: string, id: string, rest = ''): Promise<Answer> {
    const asked = request === 'cancel' ? '__typename ... on Conflict { message }' : SUCCESS;
    return (await this.plane.admin.gql(`mutation($id: ID!) { ${request}Run(id: $id${rest}) { ${asked} } }`, { id })).data[`${request}Run`];
  }

  async runOf(id: string): Promise<Answer> {
    const query = `query($id: ID!) { run(id: $id) { status statusReason attempt spec result { rounds } finishedAt workersWanted restartsLeft progress { round totalRounds workers }
         attempts { number fromRound parentNumber parentRunId endCause endRound } checkpoints { attempt round state reason } stepTasks { state } } }`;
    return (await this.plane.admin.gql(query, { id })).data.run;
  }

  statusOf(id: string, status: string): Promise<Answer> {
    return untilStatus(() => this.runOf(id), status);
  }

  /** As a coordinator pauses: the cut, its checkpoint, the word. */
  async pausedAt(id: string, coordinator: Coordinator, round: number): Promise<Answer> {
    await this.ask('pause', id);
    await until('the wish', async () => (await this.fleet.control(id, 'action')) === `${coordinator.attempt}:pause`);
    await coordinator.publish([checkpointWritten(coordinator.attempt, round, { reason: 'pause' }), paused(round)], {
      phase: 'paused',
      round,
      seats: [],
    });
    coordinator.fallSilent();
    return this.statusOf(id, 'PAUSED');
  }
}
