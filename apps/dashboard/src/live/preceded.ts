/** The items of a subscription that is opened only after something else was done; each `next` before that waits for it. */
export function preceded<Item>(first: () => Promise<void>, open: () => AsyncIterator<Item, void>): AsyncIterator<Item, void> {
  let items: AsyncIterator<Item, void> | undefined;
  let isOver = false;
  const over = { done: true, value: undefined } as const;
  return {
    next: async () => {
      if (!items && !isOver) {
        await first();
        if (!isOver) items = open();
      }
      return isOver || !items ? over : items.next();
    },
    return: async () => {
      isOver = true;
      await items?.return?.();
      return over;
    },
  };
}
