-- Runs that ended lately are looked for at every tick, among all that ever ended.
CREATE INDEX "Run_finishedAt_idx" ON "Run"("finishedAt");
