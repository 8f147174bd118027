import type { ReactNode } from 'react';
import { nextTheme, type Theme } from './theme.js';

const LABELS: Readonly<Record<Theme, string>> = { system: 'as the device', light: 'light', dark: 'dark' };

const SHAPES: Readonly<Record<Theme, ReactNode>> = {
  system: (
    <>
      <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" strokeWidth="1.5" />
      <path d="M8 2a6 6 0 0 1 0 12Z" fill="currentColor" />
    </>
  ),
  light: (
    <path
      d="M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M13 3l-1.2 1.2M4.2 11.8 3 13"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
    />
  ),
  dark: (
    <path d="M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1Z" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinejoin="round" />
  ),
};

/** Goes through device, light and dark. */
export function ThemeSwitch({ theme, onNext }: { theme: Theme; onNext: () => void }): ReactNode {
  const label = `Colours: ${LABELS[theme]}. Change to ${LABELS[nextTheme(theme)]}`;
  return (
    <button type="button" className="button quiet icon" title={label} aria-label={label} onClick={onNext}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        {SHAPES[theme]}
      </svg>
    </button>
  );
}
