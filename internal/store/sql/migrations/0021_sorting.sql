-- Lists of jobs are also sorted by when they ended and by what they cost: a page is found by an index, however many jobs
-- there are. Jobs that have not ended count as the earliest.

DROP INDEX jobs_ended;
CREATE INDEX jobs_ended ON jobs (ended, num);
CREATE INDEX jobs_cost ON jobs (cost, num);
