-- Which placement or which holder of a seat it is: its incarnation. The number of an entry in the journal: its sequence.
ALTER TABLE "RunServer" RENAME COLUMN "made" TO "incarnation";

ALTER TABLE "StepTask" RENAME COLUMN "n" TO "incarnation";
ALTER INDEX "StepTask_runId_attempt_seat_n_key" RENAME TO "StepTask_runId_attempt_seat_incarnation_key";

ALTER TABLE "RunEvent" RENAME COLUMN "n" TO "sequence";
ALTER INDEX "RunEvent_runId_attempt_n_key" RENAME TO "RunEvent_runId_attempt_sequence_key";

ALTER TABLE "Metric" RENAME COLUMN "n" TO "sequence";
ALTER INDEX "Metric_runId_attempt_n_key" RENAME TO "Metric_runId_attempt_sequence_key";

ALTER TABLE "LedgerRange" RENAME COLUMN "n" TO "sequence";

ALTER TABLE "Attempt" RENAME COLUMN "storedN" TO "storedSequence";
