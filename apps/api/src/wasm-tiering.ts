/**
 * Prisma compiles queries in WebAssembly. V8 compiles a function of it again, with all optimisations, as soon as it has run for a little. That takes 0.7 s of
 * processor time in the first seconds of an api (2.6 s in all), and gains nothing then. With a budget of 180 MB of code that runs, a hundred times that of Node 20,
 * only what runs often is compiled again. The flag is read when WebAssembly is compiled, which Prisma does when it first connects. So main.ts imports this file
 * first.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--wasm-tiering-budget=180000000');
