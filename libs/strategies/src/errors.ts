/** What goes wrong in a distributed model. Every error has a code for programs and a sentence for people. */

export type StrategyErrorCode =
  | 'STRATEGY_ARGUMENT'
  | 'STRATEGY_BACKEND'
  | 'STRATEGY_CANCELLED'
  | 'STRATEGY_DEVICE'
  | 'STRATEGY_DISPOSED'
  | 'STRATEGY_ENGINE'
  | 'STRATEGY_FOREIGN_MODEL'
  | 'STRATEGY_FUNCTION'
  | 'STRATEGY_CLUSTER'
  | 'STRATEGY_MEMBER'
  | 'STRATEGY_REPLICA'
  | 'STRATEGY_SCOPE'
  | 'STRATEGY_THREAD'
  | 'STRATEGY_UNSUPPORTED';

export class StrategyError extends Error {
  constructor(
    readonly code: StrategyErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument or option that has no meaning. */
export class ArgumentError extends StrategyError {
  constructor(message: string) {
    super('STRATEGY_ARGUMENT', message);
  }
}

/** The function given to `scope` is asynchronous: what it compiles after its first await would not be distributed. */
export class ScopeError extends StrategyError {
  constructor() {
    super(
      'STRATEGY_SCOPE',
      'scope takes a function that is not asynchronous: it would miss models that are compiled after the first await. Await what the models need before, and build and compile them in scope; or give a model that exists to distribute',
    );
  }
}

/** The model was made by another copy of tf.js than the one that the library imports. */
export class ForeignModelError extends StrategyError {
  constructor(model: string) {
    super(
      'STRATEGY_FOREIGN_MODEL',
      `the model ${model} was made by another copy of @tensorflow/tfjs-layers than the one that paceline finds: install one version of @tensorflow/tfjs beside paceline (npm ls @tensorflow/tfjs-layers shows all copies, npm dedupe joins them), and bundle neither of them apart`,
    );
  }
}

/** What `run` is given is no function of a module, or compute threads cannot load it. */
export class FunctionError extends StrategyError {
  constructor(message: string) {
    super('STRATEGY_FUNCTION', message);
  }
}

/** A part of the model, of its compilation or of its data that tf.js takes and that is not trained here. `what` names it. */
export class UnsupportedError extends StrategyError {
  constructor(
    readonly what: string,
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super('STRATEGY_UNSUPPORTED', `${what}: ${reason}`, options);
  }
}

/** The backend of tf.js in this process does not give its values at once. */
export class BackendError extends StrategyError {
  constructor(backend: string, options?: ErrorOptions) {
    super(
      'STRATEGY_BACKEND',
      `the tf.js backend ${backend} does not read tensors synchronously: call tf.setBackend('wasm') or tf.setBackend('cpu') before fit, evaluate or predict; the model itself runs on Paceline's own engine`,
      options,
    );
  }
}

/** A replica threw. In a step, parameters, optimizer state and the count of steps are those before it. */
export class ReplicaError extends StrategyError {
  constructor(
    readonly replica: number,
    /** Steps of the optimizer before this one; undefined in a function that `run` has called. */
    readonly step: number | undefined,
    /** The layer that threw; undefined outside of all layers. */
    readonly layer: string | undefined,
    reason: string,
  ) {
    super(
      'STRATEGY_REPLICA',
      `replica ${replica}${step === undefined ? '' : `, step ${step}`}${layer === undefined ? '' : `, layer ${layer}`}: ${reason}`,
    );
  }
}

/** The cluster, the task or the secret of a strategy over several processes has no meaning, or is not that of the others. */
export class ClusterConfigError extends StrategyError {
  constructor(message: string, options?: ErrorOptions) {
    super('STRATEGY_CLUSTER', message, options);
  }
}

/** Another process of the cluster has ended, was silent, or does something else. The strategy cannot train any more. */
export class MemberError extends StrategyError {
  constructor(
    /** Which processes: the type and index of their tasks. */
    readonly members: readonly { readonly type: string; readonly index: number }[],
    message: string,
    options?: ErrorOptions,
  ) {
    super('STRATEGY_MEMBER', message, options);
  }
}

/** A compute thread ended, did not start, or made no progress in time. The strategy cannot train any more. */
export class ThreadError extends StrategyError {
  constructor(message: string, options?: ErrorOptions) {
    super('STRATEGY_THREAD', message, options);
  }
}

/** The process of a device ended, did not start, or was silent for the deadline. The strategy cannot train any more. */
export class DeviceError extends StrategyError {
  constructor(
    /** Its name: `gpu:0`. */
    readonly device: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super('STRATEGY_DEVICE', message, options);
  }
}

/** An engine that was asked for is not installed here. */
export class EngineError extends StrategyError {
  constructor(message: string) {
    super('STRATEGY_ENGINE', message);
  }
}

export const disposed = (): StrategyError =>
  new StrategyError('STRATEGY_DISPOSED', 'the strategy is disposed: make a new one, and distribute the model with it');
