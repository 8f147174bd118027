/** The contract of whoever stores a run, on the rows in memory that the simulator believes; test/api/stored-run.test.ts holds the api to the same. */
import { test } from 'vitest';
import { ATTEMPT_SCENARIOS } from './stored-contract-attempts.fixture.js';
import { HISTORY_SCENARIOS } from './stored-contract-history.fixture.js';
import { memoryRun } from './stored-contract-memory.fixture.js';
import { PLACE_SCENARIOS } from './stored-contract-places.fixture.js';
import { ContractScript, specOf, type ContractOrigin } from './stored-contract.fixture.js';

for (const scenario of [...PLACE_SCENARIOS, ...ATTEMPT_SCENARIOS, ...HISTORY_SCENARIOS])
  test(scenario.name, async () => {
    const make = (from?: ContractOrigin): Promise<ContractScript> =>
      Promise.resolve(new ContractScript(memoryRun(specOf(scenario), undefined, from)));
    await scenario.play(await make(), make);
  });
