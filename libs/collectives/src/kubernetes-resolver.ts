/**
 * The pods of a StatefulSet (or of an indexed Job) behind a headless service: each has a name with its ordinal, and a DNS name that follows from it
 * (kubernetes.io, "StatefulSets", stable network identity). No lookup is needed to know all members, and none of the Kubernetes API.
 */
import { ClusterSpec, type ClusterResolver, type Resolved } from './cluster-spec.js';
import { ClusterError } from './errors.js';

export interface KubernetesOptions {
  /** Name of the headless service that governs the pods: `serviceName` of the StatefulSet, or `subdomain` of the Job's pods. */
  readonly service: string;
  /** Pods: `replicas` of the StatefulSet, or `completions` of the Job. */
  readonly replicas: number;
  /** Ordinal of the first pod: `ordinals.start` of the StatefulSet; 0 by default. */
  readonly firstOrdinal?: number;
  /** The same in all pods; 4600 by default. */
  readonly port?: number;
  /** By default that of this pod, by the search path of its DNS. */
  readonly namespace?: string;
  /** `cluster.local` by default; used where a namespace is given. */
  readonly clusterDomain?: string;
  /** HOSTNAME is the name of the pod; POD_IP, where it is set, the address at which it listens. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

const NAME = /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/;
const MOST_PODS = 4096;

/** In the place of `tf.distribute.cluster_resolver.KubernetesClusterResolver`, which asks the Kubernetes API for pods by their labels. */
export class KubernetesClusterResolver implements ClusterResolver {
  constructor(private readonly options: KubernetesOptions) {}

  /** Undefined outside of Kubernetes. @throws ClusterError naming the option or the variable */
  resolve(): Resolved | undefined {
    const { service, replicas, firstOrdinal = 0, port = 4600, namespace } = this.options;
    const { clusterDomain = 'cluster.local', environment = process.env } = this.options;
    for (const [option, value] of Object.entries({ service, namespace, clusterDomain }))
      if (value !== undefined && !(typeof value === 'string' && NAME.test(value)))
        throw new ClusterError(`${option} must be a DNS name in lower case, not ${JSON.stringify(value)}`);
    if (!Number.isInteger(replicas) || replicas < 1 || replicas > MOST_PODS)
      throw new ClusterError(`replicas must be the number of pods, from 1 to ${MOST_PODS}, not ${String(replicas)}`);
    if (!Number.isInteger(firstOrdinal) || firstOrdinal < 0)
      throw new ClusterError(`firstOrdinal must be a whole number from 0, not ${String(firstOrdinal)}`);
    if (environment['KUBERNETES_SERVICE_HOST'] === undefined) return undefined;
    const pod = environment['HOSTNAME'] ?? '';
    const [, set, digits] = /^(.+)-(\d{1,6})$/.exec(pod) ?? [];
    if (set === undefined)
      throw new ClusterError(
        `HOSTNAME is ${JSON.stringify(pod)}, which does not end in an ordinal: the pods must be those of a StatefulSet or of an indexed Job`,
      );
    const index = Number(digits) - firstOrdinal;
    if (index < 0 || index >= replicas)
      throw new ClusterError(
        `this pod is ${pod}, and there are ${replicas} replicas from ordinal ${firstOrdinal} on: give replicas as in the StatefulSet, and its ordinals.start as firstOrdinal`,
      );
    const domain = namespace === undefined ? service : `${service}.${namespace}.svc.${clusterDomain}`;
    const worker = Array.from({ length: replicas }, (_, i) => `${set}-${firstOrdinal + i}.${domain}:${port}`);
    // The DNS name of a pod may have no address yet while the pod starts.
    return { cluster: new ClusterSpec({ worker }), task: { type: 'worker', index }, listenHost: environment['POD_IP'] || '0.0.0.0' };
  }
}
