-- What holds a job, and when it may go on at the earliest, as fields of an event: until now only its
-- sentence said so.

ALTER TABLE events ADD COLUMN hold TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN not_before BIGINT NOT NULL DEFAULT 0;
