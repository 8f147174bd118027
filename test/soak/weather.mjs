/**
 * Weather as the Jena example of tf.js reads it: a row every ten minutes, with fourteen columns. Temperatures go with the hour and the season, and with
 * disturbances that last some hours; the others follow them. The same rows on every machine.
 */
const STEPS_OF_DAY = 144;
const STEPS_OF_YEAR = 365.25 * STEPS_OF_DAY;
const ROWS = Number(process.env.WEATHER_ROWS ?? 16_000);
/** The share of a disturbance that is left after ten minutes: nothing is left after a day. */
const PERSISTENCE = 0.95;
/** The first row is of April, so that what comes last has been seen on the way up to summer. */
const FIRST_DAY = 100;

let state = 1;
const uniform = () => (state = (state * 16807) % 2147483647) / 2147483647;
/** About normal, of deviation 1. */
const chance = () => (uniform() + uniform() + uniform() + uniform() - 2) * Math.sqrt(3);

export default function* () {
  let front = 0;
  for (let t = 0; t < ROWS; t++) {
    const day = (2 * Math.PI * t) / STEPS_OF_DAY;
    const year = (2 * Math.PI * (t + FIRST_DAY * STEPS_OF_DAY)) / STEPS_OF_YEAR;
    front = PERSISTENCE * front + Math.sqrt(1 - PERSISTENCE ** 2) * chance();
    const temperature = 9 - 9 * Math.cos(year) - 4 * Math.cos(day) + 5 * front + 0.3 * chance();
    const pressure = 989 - 5 * front + chance();
    const humidity = Math.max(10, Math.min(100, 75 + 12 * Math.cos(day) - 6 * front + 3 * chance()));
    const saturated = 6.1 * Math.exp((17.3 * temperature) / (temperature + 237.3));
    const vapour = (saturated * humidity) / 100;
    const wind = Math.abs(2 + front + chance());
    yield {
      'p (mbar)': pressure,
      'T (degC)': temperature,
      'Tpot (K)': temperature + 273.15 + (1000 - pressure) * 0.08,
      'Tdew (degC)': temperature - (100 - humidity) / 5,
      'rh (%)': humidity,
      'VPmax (mbar)': saturated,
      'VPact (mbar)': vapour,
      'VPdef (mbar)': saturated - vapour,
      'sh (g/kg)': (622 * vapour) / pressure,
      'H2OC (mmol/mol)': (1000 * vapour) / pressure,
      'rho (g/m**3)': (pressure * 1e5) / (287 * (temperature + 273.15)),
      'wv (m/s)': wind,
      'max. wv (m/s)': wind * (1.3 + 0.3 * uniform()),
      'wd (deg)': 360 * uniform(),
    };
  }
}
