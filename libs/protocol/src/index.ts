export * from './codec-choice.js';
export * from './errors.js';
export * from './failure-cause.js';
export * from './frames.js';
export * from './messages.js';
export * from './packed-frames.js';
export * from './residual-loss.js';
