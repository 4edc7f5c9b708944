-- The catalogue of checkpoints. Earlier versions had none: their checkpoints stay on the nodes that wrote them.

CREATE TABLE checkpoints (
	num BIGINT NOT NULL,
	number BIGINT NOT NULL,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('partial', 'stored', 'corrupt', 'removed')),
	added BIGINT NOT NULL,
	doc TEXT NOT NULL,
	PRIMARY KEY (num, number)
);

CREATE INDEX checkpoints_kept ON checkpoints (num) WHERE state IN ('partial', 'stored');
CREATE INDEX checkpoints_added ON checkpoints (added);
