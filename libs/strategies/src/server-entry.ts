/** What a process needs that serves: no tf.js of a program, which a parameter server does without. */
export { type ClusterResolver, GivenResolver, TfConfigResolver } from '@paceline/collectives';
export { Server, type ServerOptions } from './servers/server.js';
