/**
 * Prisma compiles queries in WebAssembly. V8 compiles a function of it again, with all optimisations, as soon as it has run for a little, which takes 0.7 s of
 * processor time in the first seconds of an api (2.6 s in all) and gains nothing then. With a hundred times the budget that V8 has by default (1.8 MB of code
 * that runs), only what runs often is compiled again. Flags of V8 hold for code that is loaded behind them: main.ts imports this file first.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--wasm-tiering-budget=180000000');
