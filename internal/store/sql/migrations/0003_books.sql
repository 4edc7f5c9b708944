-- Hiring and the books: leases, postings, savings, what was spent of limits, datasets and where they were used.

ALTER TABLE jobs ADD COLUMN cost DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN paid DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN place_override TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN lease TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN lease TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN lease TEXT NOT NULL DEFAULT '';
CREATE INDEX events_lease ON events (lease, seq) WHERE lease <> '';

-- What can be asked for has a column of its own, the rest is in doc.
CREATE TABLE leases (
	num BIGINT PRIMARY KEY,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('asked', 'booting', 'active', 'returning', 'ended', 'refused')),
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	job TEXT NOT NULL,
	asked BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	doc TEXT NOT NULL
);

CREATE INDEX leases_live ON leases (num) WHERE ended = 0;
CREATE INDEX leases_ended ON leases (ended) WHERE ended > 0;

-- Lines of the books. Rows are added and never changed. Amounts are whole numbers: milliseconds,
-- billionths of a dollar, thousandths of a joule.
CREATE TABLE postings (
	seq BIGINT PRIMARY KEY,
	node TEXT NOT NULL,
	class TEXT NOT NULL,
	gpu TEXT NOT NULL,
	lease TEXT NOT NULL,
	offer TEXT NOT NULL,
	from_at BIGINT NOT NULL,
	to_at BIGINT NOT NULL,
	account TEXT NOT NULL,
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	job TEXT NOT NULL,
	run TEXT NOT NULL,
	gpus_milli BIGINT NOT NULL,
	node_ms BIGINT NOT NULL,
	gpu_ms BIGINT NOT NULL,
	rent BIGINT NOT NULL,
	power BIGINT NOT NULL,
	energy BIGINT NOT NULL
);

CREATE INDEX postings_to ON postings (to_at);
CREATE INDEX postings_job ON postings (job, seq) WHERE job <> '';

CREATE TABLE savings (
	seq BIGINT PRIMARY KEY,
	at BIGINT NOT NULL,
	job TEXT NOT NULL,
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	kind TEXT NOT NULL,
	money BIGINT NOT NULL,
	time_ms BIGINT NOT NULL,
	reason TEXT NOT NULL
);

CREATE INDEX savings_at ON savings (at);

-- The audit of data: where it was used.
CREATE TABLE data_uses (
	dataset TEXT NOT NULL,
	run TEXT NOT NULL,
	node TEXT NOT NULL,
	job TEXT NOT NULL,
	owner TEXT NOT NULL,
	cloud BOOLEAN NOT NULL,
	at BIGINT NOT NULL,
	overridden TEXT NOT NULL,
	PRIMARY KEY (dataset, run, node)
);

-- Small things that are read all at once and written whole: datasets, limits, meters, totals, what was told.
CREATE TABLE records (
	kind TEXT NOT NULL,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	doc TEXT NOT NULL,
	PRIMARY KEY (kind, id)
);
