-- The elements of an array: their job file is stored once for all of them, in arrays. Their own column spec is empty.

ALTER TABLE jobs ADD COLUMN array_num BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_index BIGINT NOT NULL DEFAULT 0;
CREATE INDEX jobs_array ON jobs (array_num, num, state, cause) WHERE array_num > 0;

CREATE TABLE arrays (
	num BIGINT PRIMARY KEY,
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	name TEXT NOT NULL,
	submitted BIGINT NOT NULL,
	spec TEXT NOT NULL
);
CREATE INDEX arrays_owner ON arrays (owner, num);
