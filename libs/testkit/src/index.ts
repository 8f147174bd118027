export * from './processes.js';
export * from './data-plane.js';
export * from './pace.js';
export * from './stack.js';
