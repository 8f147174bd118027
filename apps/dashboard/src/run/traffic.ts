/** Bytes on the sockets, and how many times fewer they are than without a codec. */
import { bytes } from '../text/format.js';

/** Headers and control messages alone stay below. */
const LEAST_TIMES = 1.05;

/** `12.1 MB, 4.0 times fewer than without a codec`. */
export function trafficText(sentBytes: number, denseBytes: number): string {
  const times = sentBytes > 0 ? denseBytes / sentBytes : 1;
  if (times < LEAST_TIMES) return bytes(sentBytes);
  return `${bytes(sentBytes)}, ${times < 10 ? times.toFixed(1) : Math.round(times)} times fewer than without a codec`;
}
