-- Quotas and the ledger get their final names. Documents are JSON text whose names contain no quotes, so replacing
-- keys as text is safe, and the same in both dialects.
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

UPDATE postings SET account = 'cordoned' WHERE account = 'drained';

UPDATE postings SET account = 'releasing' WHERE account = 'returning';
