export * from './simulate.js';
export { Cluster, type Plant } from './cluster.js';
export { FAULT_KINDS, injectFault, type FaultKind } from './faults.js';
export { INVARIANTS, type Invariant, type Violation } from './checks.js';
