-- Runs that began with a checkpoint of another one are asked for whenever that one removes some.
CREATE INDEX "Attempt_parentRunId_idx" ON "Attempt"("parentRunId");
