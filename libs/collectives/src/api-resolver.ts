/** The members that a cluster spec of the service names: `paceline/client` reads it, so that addresses are kept in one place for all programs of a team. */
import { ClusterSpec, GivenResolver, type ClusterResolver, type Resolved, type Task } from './cluster-spec.js';
import { ClusterError } from './errors.js';

/** What it asks of a client of the service (`createClient` of `paceline/client`). */
export interface ClusterSpecSource {
  clusterSpecs(): Promise<readonly NamedCluster[]>;
}

interface NamedCluster {
  readonly id: string;
  readonly name: string;
  readonly servers: readonly string[];
  readonly workers: readonly string[];
}

export interface ApiClusterOptions {
  /** Name or id of the cluster spec. */
  readonly clusterSpec: string;
  /** Which task this process is; left out in a process that is none, such as the program of parameter servers. */
  readonly task?: Task;
}

const MOST_NAMES = 20;

export class ApiClusterResolver implements ClusterResolver {
  private constructor(private readonly resolved: Resolved) {}

  /**
   * Asks the service once.
   * @throws ClusterError when the team has no such cluster spec, it has no task of that type and index, or an address is none
   */
  static async lookUp(client: ClusterSpecSource, { clusterSpec, task }: ApiClusterOptions): Promise<ApiClusterResolver> {
    const all = await client.clusterSpecs();
    const found = all.find(({ id, name }) => name === clusterSpec || id === clusterSpec);
    if (!found) {
      const names = all.slice(0, MOST_NAMES).map(({ name }) => JSON.stringify(name));
      const known = names.length > 0 ? `there are ${names.join(', ')}${all.length > MOST_NAMES ? ', …' : ''}` : 'the team has none';
      throw new ClusterError(`no cluster spec is called ${JSON.stringify(clusterSpec)}: ${known}`);
    }
    const { servers, workers } = found;
    const cluster = {
      ...(workers.length > 0 ? { worker: workers } : {}),
      ...(servers.length > 0 ? { ps: servers } : {}),
    };
    return new ApiClusterResolver(task === undefined ? { cluster: new ClusterSpec(cluster) } : new GivenResolver(cluster, task).resolve());
  }

  resolve(): Resolved {
    return this.resolved;
  }
}
