/** A stream that keeps what a command writes, for tests: no terminal, 80 columns wide. */
import type { Stream } from './terminal.js';

export const capturedStream = (): Stream & { text: string } => ({
  isTTY: false,
  columns: () => 80,
  text: '',
  write(more: string) {
    this.text += more;
  },
});
