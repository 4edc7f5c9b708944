-- The agent that speaks for each node: the last that was admitted. started is in nanoseconds since the boot of its
-- machine. It begins empty: agents of earlier versions did not say who they are.

CREATE TABLE agents (
	node TEXT PRIMARY KEY,
	process TEXT NOT NULL,
	machine TEXT NOT NULL,
	boot TEXT NOT NULL,
	folder TEXT NOT NULL,
	started BIGINT NOT NULL,
	host TEXT NOT NULL,
	path TEXT NOT NULL,
	since BIGINT NOT NULL
);
