-- How far a job has come: units of work that its ended runs have done and saved, the
-- GPU-seconds they had, and how often a plan has stopped it.

ALTER TABLE jobs ADD COLUMN done DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN served DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN stops BIGINT NOT NULL DEFAULT 0;
