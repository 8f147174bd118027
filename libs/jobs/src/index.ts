export * from './contract.js';
export * from './redis.js';
export * from './reports.js';
export * from './hand-queue.js';
