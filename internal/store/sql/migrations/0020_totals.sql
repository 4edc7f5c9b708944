-- Totals of the ledger, so that a report need not read all postings. They are added up beside the commits: last is the
-- number of the last posting that is in them, and detailed_since is from when there are postings and totals of hours.
CREATE TABLE ledger_totals (
	span TEXT NOT NULL CHECK (span IN ('hour', 'day')),
	kind TEXT NOT NULL CHECK (kind IN ('node', 'payer')),
	start_at BIGINT NOT NULL,
	doc TEXT NOT NULL,
	PRIMARY KEY (span, kind, start_at)
);

CREATE TABLE ledger_rollup (
	one BIGINT PRIMARY KEY CHECK (one = 1),
	last BIGINT NOT NULL,
	detailed_since BIGINT NOT NULL
);

INSERT INTO ledger_rollup (one, last, detailed_since) VALUES (1, 0, 0);
