import { createRoot } from 'react-dom/client';
import { App } from './App.js';
import { applyTheme } from './components/theme.js';
import 'uplot/dist/uPlot.min.css';
import './styles/tokens.css';
import './styles/page.css';
import './styles/components.css';
import './styles/runs.css';
import './styles/run.css';
import './styles/datasets.css';
import './styles/predictions.css';

applyTheme();
createRoot(document.getElementById('app')!).render(<App />);
