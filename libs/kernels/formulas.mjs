/**
 * What the loops over parameters do to each element (elementwise-kernels.mjs makes loops of them; src/references.ts and src/optimizer-references.ts
 * are their definitions). A kernel takes its arrays as byte offsets, then their length, then its parameters; paramIn may be paramOut.
 *
 * Parameters are float32. Betas and rho come as float64, so that 1 − beta is rounded to float32 once, as Keras does (from float32 betas 1 − 0.999
 * would be 5e-5 off). Bodies that are short are unrolled to 64 bytes, one cache line.
 *
 * `normal` gives 0 for what is smaller in size than 2^-126. A slot whose gradient stays 0 shrinks to such numbers, and stays there, because 0.9 times the
 * smallest of them is rounded up to the same number. Processors take about a hundred times as long for an operation on them. TensorFlow sets its
 * threads to treat them as 0.
 */

/** @typedef {{ arrays: string[], parameters?: string[], derived?: Record<string, string>, unrolled?: number, each: string }} Formula */

const BETAS = { rest1: '<f32>(1.0 - beta1)', rest2: '<f32>(1.0 - beta2)' };
const RHO = { kept: '<f32>rho', rest: '<f32>(1.0 - rho)' };

/** The moments of Adam with the gradient taken in. */
const MOMENTS = `
  const g = grad * gradScale;
  const m0 = m;
  const m1 = normal(m0 + (g - m0) * rest1);
  const v0 = v;
  const v1 = normal(v0 + (g * g - v0) * rest2);`;
const KEPT_MOMENTS = `${MOMENTS}
  m = m1;
  v = v1;`;
/** The direction of a step of LAMB (You et al. 2020). */
const LAMB_STEP = 'm1 / correction1 / (sqrt(v1 / correction2) + epsilon)';
const LAMB_PARAMETERS = ['correction1', 'correction2', 'beta1: f64', 'beta2: f64', 'epsilon', 'gradScale'];

/** @type {Record<string, Formula>} */
export const FORMULAS = {
  /** (−0) + (+0) is +0, as IEEE says; a sum that starts from −0 and adds −0 stays −0. */
  add: { arrays: ['dst', 'src'], unrolled: 4, each: 'dst = dst + src' },
  /** dst may be src. */
  scaleInto: { arrays: ['dst', 'src'], parameters: ['factor'], unrolled: 4, each: 'dst = src * factor' },
  fill: { arrays: ['dst'], parameters: ['value'], unrolled: 4, each: 'dst = value' },
  /** Cuts every element to −limit..limit. pmin and pmax differ from min and max in zeros of two signs, which do not meet here, and keep a NaN that stands on the left. */
  clamp: { arrays: ['dst'], parameters: ['limit'], derived: { least: '-limit' }, unrolled: 4, each: 'dst = pmin(pmax(dst, least), limit)' },
  compensateDelay: {
    arrays: ['grad', 'now', 'then'],
    parameters: ['lambda', 'gradScale'],
    each: `
      const g = grad * gradScale;
      grad = g + lambda * g * g * (now - then);`,
  },
  average: { arrays: ['dst', 'src'], parameters: ['kept', 'rest'], each: 'dst = normal(kept * dst + rest * src)' },
  /** Loshchilov & Hutter 2019. */
  decayWeights: {
    arrays: ['paramIn', 'paramOut'],
    parameters: ['weightDecay', 'learningRate'],
    each: `
      const w = paramIn;
      paramOut = w - w * weightDecay * learningRate;`,
  },
  sgd: {
    arrays: ['paramIn', 'paramOut', 'grad'],
    parameters: ['learningRate', 'gradScale'],
    each: 'paramOut = paramIn - grad * gradScale * learningRate',
  },
  momentum: {
    arrays: ['paramIn', 'paramOut', 'velocity', 'grad'],
    parameters: ['learningRate', 'decay', 'nesterov: u32', 'gradScale'],
    each: `
      const step = grad * gradScale * learningRate;
      const v = normal(velocity * decay - step);
      velocity = v;
      paramOut = paramIn + (nesterov ? v * decay - step : v);`,
  },
  adam: {
    arrays: ['paramIn', 'paramOut', 'm', 'v', 'grad'],
    parameters: ['stepSize', 'beta1: f64', 'beta2: f64', 'epsilon', 'gradScale'],
    derived: BETAS,
    each: `${KEPT_MOMENTS}
      paramOut = paramIn - (m1 * stepSize) / (sqrt(v1) + epsilon);`,
  },
  /** Adam with the largest v so far in place of v (Reddi et al. 2018). */
  amsgrad: {
    arrays: ['paramIn', 'paramOut', 'm', 'v', 'largest', 'grad'],
    parameters: ['stepSize', 'beta1: f64', 'beta2: f64', 'epsilon', 'gradScale'],
    derived: BETAS,
    each: `${KEPT_MOMENTS}
      const most = max(largest, v1);
      largest = most;
      paramOut = paramIn - (m1 * stepSize) / (sqrt(most) + epsilon);`,
  },
  nadam: {
    arrays: ['paramIn', 'paramOut', 'm', 'v', 'grad'],
    parameters: ['learningRate', 'next', 'nextRest', 'now', 'nowRest', 'rest', 'beta1: f64', 'beta2: f64', 'epsilon', 'gradScale'],
    derived: BETAS,
    each: `${KEPT_MOMENTS}
      const mean = (next * m1) / nextRest + (now * g) / nowRest;
      paramOut = paramIn - (mean * learningRate) / (sqrt(v1 / rest) + epsilon);`,
  },
  adamax: {
    arrays: ['paramIn', 'paramOut', 'm', 'u', 'grad'],
    parameters: ['learningRate', 'correction', 'beta1: f64', 'beta2', 'epsilon', 'gradScale'],
    derived: { rest1: BETAS.rest1 },
    each: `
      const g = grad * gradScale;
      const m0 = m;
      const m1 = normal(m0 + (g - m0) * rest1);
      m = m1;
      const u1 = normal(max(beta2 * u, abs(g)));
      u = u1;
      paramOut = paramIn - (learningRate * m1) / (correction * (u1 + epsilon));`,
  },
  adagrad: {
    arrays: ['paramIn', 'paramOut', 'squares', 'grad'],
    parameters: ['learningRate', 'epsilon', 'gradScale'],
    each: `
      const g = grad * gradScale;
      const s = squares + g * g;
      squares = s;
      paramOut = paramIn - (learningRate * g) / sqrt(s + epsilon);`,
  },
  adadelta: {
    arrays: ['paramIn', 'paramOut', 'squares', 'steps', 'grad'],
    parameters: ['learningRate', 'rho: f64', 'epsilon', 'gradScale'],
    derived: RHO,
    each: `
      const g = grad * gradScale;
      const s = normal(kept * squares + rest * (g * g));
      squares = s;
      const d = steps;
      const step = (sqrt(d + epsilon) * g) / sqrt(s + epsilon);
      steps = normal(kept * d + rest * (step * step));
      paramOut = paramIn - learningRate * step;`,
  },
  /** With `centered` the mean is taken off; with a momentum above 0 steps add up. What is not asked for is not touched: its pointer may be anything. */
  rmsprop: {
    arrays: ['paramIn', 'paramOut', 'squares', 'mean', 'velocity', 'grad'],
    parameters: ['learningRate', 'rho: f64', 'decay', 'epsilon', 'centered: u32', 'gradScale'],
    derived: { ...RHO, hasVelocity: 'decay > 0' },
    each: `
      const g = grad * gradScale;
      const s = normal(kept * squares + rest * (g * g));
      squares = s;
      let under = s;
      if (centered) {
        const a = normal(kept * mean + rest * g);
        mean = a;
        under = s - a * a;
      }
      let move = (learningRate * g) / sqrt(under + epsilon);
      if (hasVelocity) {
        move = normal(decay * velocity + move);
        velocity = move;
      }
      paramOut = paramIn - move;`,
  },
  /** FTRL-Proximal with the rate power −0.5 (McMahan et al. 2013). */
  ftrl: {
    arrays: ['paramIn', 'paramOut', 'squares', 'linear', 'grad'],
    parameters: ['learningRate', 'l1', 'twiceL2', 'twiceShrinkage', 'gradScale'],
    derived: { least: '-l1' },
    each: `
      const g = grad * gradScale;
      const w = paramIn;
      const s0 = squares;
      const s1 = s0 + g * g;
      squares = s1;
      const root = sqrt(s1);
      const pulled = g + twiceShrinkage * w;
      const moved = ((root - sqrt(s0)) / learningRate) * w;
      const z = linear + (pulled - moved);
      linear = z;
      paramOut = (min(max(z, least), l1) - z) / (root / learningRate + twiceL2);`,
  },
  /** Chen et al. 2023. */
  lion: {
    arrays: ['paramIn', 'paramOut', 'm', 'grad'],
    parameters: ['learningRate', 'beta1: f64', 'beta2: f64', 'gradScale'],
    derived: { ...BETAS, kept1: '<f32>beta1', kept2: '<f32>beta2', minus: '-learningRate' },
    each: `
      const g = grad * gradScale;
      const m0 = m;
      const c = m0 * kept1 + g * rest1;
      paramOut = paramIn - (c > 0 ? learningRate : c < 0 ? minus : 0);
      m = normal(m0 * kept2 + g * rest2);`,
  },
  /** Writes the direction alone: the moments stay as they are. */
  lambStep: {
    arrays: ['step', 'm', 'v', 'grad'],
    parameters: LAMB_PARAMETERS,
    derived: BETAS,
    each: `${MOMENTS}
      step = ${LAMB_STEP};`,
  },
  lamb: {
    arrays: ['paramIn', 'paramOut', 'm', 'v', 'grad'],
    parameters: ['rate', ...LAMB_PARAMETERS],
    derived: BETAS,
    each: `${KEPT_MOMENTS}
      paramOut = paramIn - rate * (${LAMB_STEP});`,
  },
  /** You et al. 2017. */
  lars: {
    arrays: ['paramIn', 'paramOut', 'velocity', 'grad'],
    parameters: ['rate', 'momentum', 'weightDecay', 'gradScale'],
    each: `
      const w = paramIn;
      const g = grad * gradScale + weightDecay * w;
      const moved = normal(momentum * velocity - rate * g);
      velocity = moved;
      paramOut = w + moved;`,
  },
};
