-- What people and reports ask for is found by an index: jobs by owner and state, by name and by time, events by kind and
-- by who caused them, postings and savings by who pays.

CREATE INDEX jobs_owner_state ON jobs (owner, state, num, cause);
CREATE INDEX jobs_name ON jobs (name, num);
CREATE INDEX jobs_submitted ON jobs (submitted, num);
CREATE INDEX jobs_cause ON jobs (state, cause, num);

CREATE INDEX events_kind ON events (kind, seq);
CREATE INDEX events_actor ON events (actor, seq);

CREATE INDEX postings_owner ON postings (owner, to_at) WHERE owner <> '';
CREATE INDEX postings_project ON postings (project, to_at) WHERE project <> '';

-- Postings end with the hour at the latest, except after a time without a server. So those that overlap a period end
-- within an hour after it, or are here.
CREATE INDEX postings_long ON postings (to_at) WHERE to_at - from_at > 3600000000;

CREATE INDEX savings_owner ON savings (owner, at) WHERE owner <> '';
CREATE INDEX savings_project ON savings (project, at) WHERE project <> '';
CREATE INDEX savings_job ON savings (job, at) WHERE job <> '';

CREATE INDEX data_uses_at ON data_uses (dataset, at);
