export * from './max-pooling';
export * from './normalising';
export * from './passes';
export * from './pooling';
export * from './products';
export * from './recurrent';
export * from './sparse';
export * from './transformer';
