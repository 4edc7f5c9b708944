-- What is written beside the loop and read by name: curves of metrics, forecasts, jobs that ended and what was learned from them.
CREATE TABLE documents (
	kind TEXT NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	at BIGINT NOT NULL,
	doc TEXT NOT NULL,
	PRIMARY KEY (kind, id)
);

CREATE INDEX documents_at ON documents (kind, at);
