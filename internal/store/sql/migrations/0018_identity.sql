-- With what and from where an event was caused, and for how many calls it stands. What a node proves itself with, and what
-- of it an admin has to accept.

ALTER TABLE events ADD COLUMN token TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN calls BIGINT NOT NULL DEFAULT 0;

CREATE INDEX events_audit ON events (seq) WHERE address <> '';

ALTER TABLE nodes ADD COLUMN identity TEXT NOT NULL DEFAULT '';
