-- Marks that tell apart the histories of a yard whose database was restored from a backup. Runs of earlier versions have
-- no UID. A yard gets its first incarnation when a server of this version starts.

ALTER TABLE runs ADD COLUMN uid TEXT NOT NULL DEFAULT '';

CREATE TABLE incarnations (
	num BIGINT PRIMARY KEY,
	mark TEXT NOT NULL,
	began BIGINT NOT NULL,
	settled BIGINT NOT NULL,
	reason TEXT NOT NULL,
	last_job BIGINT NOT NULL,
	last_lease BIGINT NOT NULL,
	last_event BIGINT NOT NULL
);
