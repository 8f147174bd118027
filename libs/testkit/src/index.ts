export * from './processes.js';
export * from './data-plane.js';
export * from './patience.js';
export * from './pace.js';
export * from './stack.js';
export * from './checkpoint-fixture.js';
export * from './faulty-disk.js';
export * from './s3-server.js';
