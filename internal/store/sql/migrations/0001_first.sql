-- Times are microseconds since 1970 in UTC, 0 for none. Lists are JSON, '' for none.
-- A migration is never changed once released: what it says must not depend on the code.
-- Every statement ends with a semicolon at the end of a line.

CREATE TABLE jobs (
	num BIGINT PRIMARY KEY,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	name TEXT NOT NULL,
	workdir TEXT NOT NULL,
	idem_key TEXT NOT NULL,
	key_hash TEXT NOT NULL,
	pipeline TEXT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('pending', 'starting', 'running', 'recovering', 'pausing', 'paused',
		'cancelling', 'succeeded', 'failed', 'cancelled')),
	cause TEXT NOT NULL,
	reason TEXT NOT NULL,
	submitted BIGINT NOT NULL,
	since BIGINT NOT NULL,
	started BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	exit_code BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	needs TEXT NOT NULL,
	tried TEXT NOT NULL,
	not_before BIGINT NOT NULL,
	avoid TEXT NOT NULL,
	floor_memory BIGINT NOT NULL,
	floor_gpu_memory BIGINT NOT NULL,
	last_node TEXT NOT NULL,
	spec TEXT NOT NULL
);

-- Lists of jobs come newest first; what has not ended and what ended lately is read at every start.
CREATE INDEX jobs_state ON jobs (state, num);
CREATE INDEX jobs_owner ON jobs (owner, num);
CREATE INDEX jobs_project ON jobs (project, num) WHERE project <> '';
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended > 0;
CREATE INDEX jobs_key ON jobs (owner, idem_key) WHERE idem_key <> '';
CREATE INDEX jobs_pipeline ON jobs (pipeline, num) WHERE pipeline <> '';

CREATE TABLE runs (
	num BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('ordered', 'preparing', 'running', 'stopping', 'ended')),
	cause TEXT NOT NULL,
	reason TEXT NOT NULL,
	ordered BIGINT NOT NULL,
	started BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	stop TEXT NOT NULL CHECK (stop IN ('', 'term', 'kill')),
	stop_for TEXT NOT NULL,
	ranks TEXT NOT NULL,
	PRIMARY KEY (num, epoch)
);

CREATE INDEX runs_live ON runs (num) WHERE state <> 'ended';

-- The jobs that have or had a run on a node.
CREATE TABLE job_nodes (
	node TEXT COLLATE "C" NOT NULL,
	num BIGINT NOT NULL,
	PRIMARY KEY (node, num)
);

CREATE TABLE nodes (
	id TEXT COLLATE "C" PRIMARY KEY,
	seq BIGINT NOT NULL,
	class TEXT NOT NULL CHECK (class IN ('local', 'reserved', 'ondemand')),
	pool TEXT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('ready', 'suspect', 'lost', 'removed')),
	since BIGINT NOT NULL,
	reason TEXT NOT NULL,
	drained BOOLEAN NOT NULL,
	joined BIGINT NOT NULL,
	machine_key TEXT NOT NULL,
	inventory TEXT NOT NULL
);

CREATE TABLE users (
	id TEXT COLLATE "C" PRIMARY KEY,
	seq BIGINT NOT NULL,
	role TEXT NOT NULL,
	created BIGINT NOT NULL,
	disabled BOOLEAN NOT NULL,
	gpu_seconds DOUBLE PRECISION NOT NULL,
	gpu_seconds_at BIGINT NOT NULL
);

CREATE TABLE tokens (
	id TEXT COLLATE "C" PRIMARY KEY,
	seq BIGINT NOT NULL,
	kind TEXT NOT NULL CHECK (kind IN ('access', 'bootstrap', 'join')),
	owner TEXT NOT NULL,
	hash TEXT NOT NULL,
	scope TEXT NOT NULL,
	note TEXT NOT NULL,
	class TEXT NOT NULL,
	pool TEXT NOT NULL,
	uses_left BIGINT NOT NULL,
	created BIGINT NOT NULL,
	expires BIGINT NOT NULL,
	revoked BOOLEAN NOT NULL
);

-- The feed. Rows are added and never changed.
CREATE TABLE events (
	seq BIGINT PRIMARY KEY,
	at BIGINT NOT NULL,
	kind TEXT NOT NULL,
	actor TEXT NOT NULL,
	owner TEXT NOT NULL,
	job TEXT NOT NULL,
	run TEXT NOT NULL,
	node TEXT NOT NULL,
	from_state TEXT NOT NULL,
	to_state TEXT NOT NULL,
	reason TEXT NOT NULL
);

CREATE INDEX events_owner ON events (owner, seq) WHERE owner <> '';
CREATE INDEX events_job ON events (job, seq) WHERE job <> '';
CREATE INDEX events_node ON events (node, seq) WHERE node <> '';

-- The outbox: what engines shall do and have not done yet.
CREATE TABLE orders (
	order_key TEXT PRIMARY KEY,
	run TEXT NOT NULL,
	job TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	rank BIGINT NOT NULL,
	node TEXT NOT NULL,
	stop TEXT NOT NULL CHECK (stop IN ('', 'term', 'kill')),
	launch TEXT NOT NULL
);

-- One row that Ping writes and reads.
CREATE TABLE pings (
	one BIGINT PRIMARY KEY CHECK (one = 1),
	count BIGINT NOT NULL
);

INSERT INTO pings (one, count) VALUES (1, 0);
