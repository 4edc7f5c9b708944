-- Questions to the owners of jobs, with the options that they have, and the question that an event is about. num is the
-- number of the job, question that of the question about it.

CREATE TABLE questions (
	num BIGINT NOT NULL,
	question BIGINT NOT NULL,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	owner TEXT NOT NULL,
	kind TEXT NOT NULL,
	state TEXT NOT NULL,
	doc TEXT NOT NULL,
	PRIMARY KEY (num, question)
);

CREATE INDEX questions_state ON questions (state, num);
CREATE INDEX questions_owner ON questions (owner, num);

ALTER TABLE events ADD COLUMN question TEXT NOT NULL DEFAULT '';
