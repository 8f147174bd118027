export * from './limits.js';
export * from './run-spec.js';
export * from './config-keys.js';
export * from './model-topology.js';
export * from './layout.js';
export * from './surface.js';
export * from './comparable-config.js';
export * from './worker-memory.js';
