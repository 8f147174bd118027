/** Prints the milliseconds of a round over TCP of this network namespace: node shaped-link.mjs <bytes per second of the product's own link> <bytes each way> */
import { roundMsOver } from '../../bench/slow-link.mjs';

const [bytesPerSecond, bytes] = /** @type {[number, number]} */ (process.argv.slice(2).map(Number));
process.stdout.write(`${await roundMsOver({ bytesPerSecond, delayMs: 0 }, bytes, bytes, 3)}\n`);
