/** Stands in for the package `ws`, which is Node's. */
export default (globalThis as { WebSocket?: unknown }).WebSocket;
