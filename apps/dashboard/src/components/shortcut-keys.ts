/** Keys that do something anywhere on a page, and what a key press asks for. They can be turned off, for those who speak or whose keys slip. */
export const SHORTCUTS = [
  { key: 'j', does: 'Next of the list' },
  { key: 'k', does: 'Previous of the list' },
  { key: 'r', does: 'All runs' },
  { key: 'd', does: 'All datasets' },
  { key: 't', does: 'Colours: device, light, dark' },
  { key: '?', does: 'This help' },
] as const;

export type Shortcut = (typeof SHORTCUTS)[number]['key'];

interface Press {
  readonly key: string;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly altKey: boolean;
}

/** @param isTyping the key belongs to a field, or to an open dialog */
export function shortcutOf({ key, ctrlKey, metaKey, altKey }: Press, isTyping: boolean): Shortcut | undefined {
  if (isTyping || ctrlKey || metaKey || altKey) return undefined;
  return SHORTCUTS.find((shortcut) => shortcut.key === key)?.key;
}

/** Which of so many links comes after (1) or before (-1) the one that has the focus; -1 stands for none of them. */
export function neighbour(focused: number, step: 1 | -1, count: number): number | undefined {
  if (count === 0) return undefined;
  if (focused < 0) return step === 1 ? 0 : count - 1;
  return Math.min(count - 1, Math.max(0, focused + step));
}

const NAME = 'paceline.shortcuts';

export const areOn = (storage: Pick<Storage, 'getItem'> = window.localStorage): boolean => storage.getItem(NAME) !== 'off';

export function turn(on: boolean, storage: Pick<Storage, 'setItem' | 'removeItem'> = window.localStorage): void {
  if (on) storage.removeItem(NAME);
  else storage.setItem(NAME, 'off');
}
