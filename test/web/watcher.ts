import type { Page } from 'playwright-core';

/** Collects what a page must not do: throw, complain on the console, violate its content policy, open a dialog, ask another server. */
export class Watcher {
  readonly complaints: string[] = [];
  readonly #expected: RegExp[] = [];

  constructor(page: Page) {
    const complain = (text: string): void => {
      if (!this.#expected.some((pattern) => pattern.test(text))) this.complaints.push(text);
    };
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') complain(`console ${message.type()}: ${message.text()}`);
    });
    page.on('pageerror', (error) => complain(`thrown: ${error.message}`));
    page.on('dialog', (dialog) => {
      complain(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('request', (request) => {
      const { protocol, hostname } = new URL(request.url());
      if (hostname !== '127.0.0.1' && protocol !== 'blob:') complain(`asked another server: ${request.url()}`);
    });
  }

  /** From now on, complaints like this belong to the scenario. */
  expect(pattern: RegExp): void {
    this.#expected.push(pattern);
  }
}
