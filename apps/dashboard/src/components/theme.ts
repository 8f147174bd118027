/**
 * Light or dark: as the device has it, unless the person chose one. The choice is an attribute of the page that sets its `color-scheme`;
 * every colour in tokens.css follows that.
 */
export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

const NAME = 'paceline.theme';
const CHANGED = 'paceline:theme';

export const nextTheme = (theme: Theme): Theme => THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!;

export function readTheme(storage: Pick<Storage, 'getItem'> = window.localStorage): Theme {
  const stored = storage.getItem(NAME);
  return THEMES.find((theme) => theme === stored) ?? 'system';
}

/** Shows the page in the stored theme. */
export function applyTheme(theme: Theme = readTheme()): void {
  if (theme === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme;
}

export function setTheme(theme: Theme): void {
  if (theme === 'system') window.localStorage.removeItem(NAME);
  else window.localStorage.setItem(NAME, theme);
  applyTheme(theme);
  window.dispatchEvent(new Event(CHANGED));
}

/** @returns stops listening */
export function onThemeChange(listener: () => void): () => void {
  const device = window.matchMedia('(prefers-color-scheme: dark)');
  device.addEventListener('change', listener);
  window.addEventListener(CHANGED, listener);
  return () => {
    device.removeEventListener('change', listener);
    window.removeEventListener(CHANGED, listener);
  };
}
