-- The durations of past runs, from which those of other jobs are estimated: in nanoseconds, on what their jobs ask
-- for. There are as many as the yard remembers: of each user, program and number of GPUs the newest. It begins empty:
-- earlier versions did not store how fast the GPUs of a run were.

CREATE TABLE past_runs (
	num BIGINT PRIMARY KEY,
	owner TEXT NOT NULL,
	program TEXT NOT NULL,
	gpus BIGINT NOT NULL,
	ran BIGINT NOT NULL
);
