import react from '@vitejs/plugin-react';
import { defaultClientConditions, defineConfig } from 'vite';

/**
 * The api serves dist/ with the policy `default-src 'self'`: no inline script or style, no data: address, so nothing is inlined here.
 * `npm run dev -w @paceline/dashboard` shows the sources against the api at PACELINE_URL.
 */
const api = process.env['PACELINE_URL'] ?? 'http://127.0.0.1:4100';

export default defineConfig({
  root: import.meta.dirname,
  // Our own packages from their sources, so that the page can be built before they are.
  resolve: { conditions: ['paceline-source', ...defaultClientConditions] },
  plugins: [react()],
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'], // the first with light-dark()
    reportCompressedSize: true,
    // One script: an api of a newer release has no parts of this page, so a tab that was opened before must not need one later.
    rolldownOptions: { output: { codeSplitting: false } },
    license: { fileName: 'third-party-licenses.md' }, // of the packages whose code is in the page
  },
  server: { proxy: { '/graphql': { target: api, ws: true }, '/api': { target: api } } },
});
