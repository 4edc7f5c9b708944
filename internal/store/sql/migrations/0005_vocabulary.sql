-- Columns, states, kinds and keys get the words of the glossary: quota, ledger, lease, cordon. Keys in documents are
-- replaced as text, which is the same in both dialects and safe: a quote within a JSON string is escaped, so a key with
-- its quotes and colon cannot stand in one.
UPDATE records SET kind = 'quota', doc = replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(doc,
	'"Subject":', '"subject":'), '"Seq":', '"seq":'), '"GPUs":', '"gpus":'), '"Nodes":', '"nodes":'), '"GPUHours":', '"gpu_hours":'),
	'"Money":', '"budget":'), '"Period":', '"period":'), '"At":', '"on_exceeded":'), '"Borrow":', '"borrow":'),
	'"WarnAt":', '"warn_at":'), '"Removed":', '"removed":')
WHERE kind = 'limit';

UPDATE records SET kind = 'usage', doc = replace(replace(replace(replace(replace(doc,
	'"Subject":', '"subject":'), '"Period":', '"period":'), '"Begin":', '"begin":'), '"GPUSeconds":', '"gpu_seconds":'), '"Money":', '"cost":')
WHERE kind = 'total';

UPDATE records SET kind = 'notice', doc = replace(replace(replace(replace(replace(replace(replace(replace(replace(doc,
	'"Subject":', '"subject":'), '"Job":', '"job":'), '"Measure":', '"measure":'), '"Mark":', '"mark":'), '"Begin":', '"begin":'),
	'"Near":', '"near":'), '"UsedUp":', '"used_up":'), '"Forecast":', '"forecast":'), '"Held":', '"held":')
WHERE kind = 'told';

UPDATE records SET doc = replace(replace(replace(replace(replace(replace(doc,
	'"rent_nanodollars":', '"node_cost_nanodollars":'), '"power_nanodollars":', '"energy_cost_nanodollars":'),
	'"rent":', '"hourly":'), '"hired":', '"on_demand":'), '"rest":"drained"', '"rest":"cordoned"'), '"rest":"returning"', '"rest":"releasing"')
WHERE kind = 'meter';

UPDATE records SET doc = replace(replace(doc, '"bills":', '"billing_unit":'), '"least":', '"min_billed":') WHERE kind = 'meter';

UPDATE postings SET account = 'cordoned' WHERE account = 'drained';

UPDATE postings SET account = 'releasing' WHERE account = 'returning';

ALTER TABLE postings RENAME COLUMN rent TO node_cost;
ALTER TABLE postings RENAME COLUMN power TO energy_cost;
ALTER TABLE nodes RENAME COLUMN drained TO cordoned;

-- The states of a lease are part of a constraint, which only a new table can change.
CREATE TABLE leases_renamed (
	num BIGINT PRIMARY KEY,
	id TEXT NOT NULL,
	seq BIGINT NOT NULL,
	state TEXT NOT NULL CHECK (state IN ('requested', 'booting', 'active', 'releasing', 'ended', 'refused')),
	owner TEXT NOT NULL,
	project TEXT NOT NULL,
	job TEXT NOT NULL,
	requested BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	doc TEXT NOT NULL
);

INSERT INTO leases_renamed (num, id, seq, state, owner, project, job, requested, ended, doc)
SELECT num, id, seq, CASE state WHEN 'asked' THEN 'requested' WHEN 'returning' THEN 'releasing' ELSE state END,
	owner, project, job, asked, ended,
	replace(replace(replace(replace(replace(replace(replace(replace(doc,
	'"State":"asked"', '"State":"requested"'), '"State":"returning"', '"State":"releasing"'),
	'"Asked":', '"Requested":'), '"Returned":', '"Released":'),
	'"bills":', '"billing_increment":'), '"least":', '"min_billing":'), '"most":', '"max_nodes":'), '"losses":', '"loss_rate":')
FROM leases;

DROP TABLE leases;
ALTER TABLE leases_renamed RENAME TO leases;
CREATE INDEX leases_live ON leases (num) WHERE ended = 0;
CREATE INDEX leases_ended ON leases (ended) WHERE ended > 0;

UPDATE documents SET doc = replace(replace(replace(replace(doc,
	'"heard":', '"count":'), '"badall":', '"non_finite_total":'), '"badat":', '"non_finite_at":'), '"bad":', '"non_finite":')
WHERE kind = 'curve';

UPDATE documents SET doc = replace(doc, '"said":', '"notices":') WHERE kind = 'forecast';

-- Past events are read again by simulations, which know the new words alone.
UPDATE events SET kind = 'node.cordoned' WHERE kind = 'node.drained';
UPDATE events SET kind = 'node.uncordoned' WHERE kind = 'node.undrained';
UPDATE events SET kind = 'gpu.cleared' WHERE kind = 'gpu.released';
UPDATE events SET kind = 'gpu.recovered' WHERE kind = 'gpu.well';
UPDATE events SET kind = 'quota.set' WHERE kind = 'limit.set';
UPDATE events SET kind = 'lease.requested' WHERE kind = 'lease.asked';
UPDATE events SET kind = 'lease.releasing' WHERE kind = 'lease.returning';
UPDATE events SET from_state = 'requested' WHERE from_state = 'asked' AND lease <> '';
UPDATE events SET to_state = 'requested' WHERE to_state = 'asked' AND lease <> '';
UPDATE events SET from_state = 'releasing' WHERE from_state = 'returning' AND lease <> '';
UPDATE events SET to_state = 'releasing' WHERE to_state = 'returning' AND lease <> '';
