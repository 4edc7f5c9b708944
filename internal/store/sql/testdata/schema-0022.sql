-- Rows of a small yard at schema 22: a finished job, one that needs it and runs, and what belongs to them.
INSERT INTO jobs (num, id, seq, owner, project, name, workdir, idem_key, key_hash, pipeline, state, cause, reason, submitted, since, started, ended, exit_code, epoch, needs, tried, not_before, avoid, floor_memory, floor_gpu_memory, last_node, done, served, stops, spec)
VALUES (1, 'j1', 5, 'ada', 'vision', 'prepare', '', 'key-1', 'abc', 'p1', 'succeeded', '', 'ended well', 1772366400000000, 1772366460000000, 1772366410000000, 1772366460000000, 0, 1, '', '', 0, '', 0, 0, 'gpu-1', 0, 50, 0, '{"name":"prepare","run":"python prepare.py","resources":{"gpus":"0","nodes":"1","cpus":"1"},"place":"any","objective":"time"}');
INSERT INTO jobs (num, id, seq, owner, project, name, workdir, idem_key, key_hash, pipeline, state, cause, reason, submitted, since, started, ended, exit_code, epoch, needs, tried, not_before, avoid, floor_memory, floor_gpu_memory, last_node, done, served, stops, spec)
VALUES (2, 'j2', 9, 'ada', 'vision', 'train', 'sha256:12', 'key-1', 'abc', 'p1', 'running', 'node_lost', 'runs on gpu-1', 1772366401000000, 1772366470000000, 1772366465000000, 0, 0, 2, '["j1"]', '{"node_lost":1}', 1772366466000000, '["gpu-9"]', 1073741824, 0, 'gpu-1', 1234.5, 7200.25, 2, '{"name":"train","run":"python train.py","resources":{"gpus":"1..4","gpu":["A100:80GB"],"nodes":"1","cpus":"8","memory":"32GB"},"place":"any","objective":"time","max_duration":"6h","retry":3,"needs":["prepare"]}');
INSERT INTO runs (num, epoch, id, seq, state, cause, reason, ordered, started, ended, stop, stop_for, ranks)
VALUES (2, 1, 'j2.1', 4, 'ended', 'node_lost', 'the node stopped answering', 1772366462000000, 1772366463000000, 1772366464000000, '', '', '[{"rank":0,"node":"gpu-9","cpus":"8","state":"ended"}]');
INSERT INTO runs (num, epoch, id, seq, state, cause, reason, ordered, started, ended, stop, stop_for, uid, ranks)
VALUES (2, 2, 'j2.2', 3, 'running', '', 'the first node that fits', 1772366466000000, 1772366470000000, 0, '', '', 'f00f00f00f00f00f00f00f00f00f00f0', '[{"rank":0,"node":"gpu-1","gpus":[0],"cpus":"8","memory":"32GB","state":"running","started":"2026-03-01T12:01:10Z"}]');
INSERT INTO job_nodes (node, num) VALUES ('gpu-9', 2), ('gpu-1', 2);
INSERT INTO nodes (id, seq, class, pool, state, since, reason, cordoned, joined, machine_key, inventory)
VALUES ('gpu-1', 2, 'local', 'main', 'ready', 1772366400000000, 'reports', FALSE, 1772366400000000, 'key-1', '{"address":"10.0.0.1","os":"linux","arch":"amd64","version":"0.1.0","cpus":"64","memory":"512GB","disk":"4TB","gpus":[{"index":0,"uuid":"GPU-1","model":"NVIDIA A100-SXM4-80GB","memory":"80GB"}]}');
INSERT INTO users (id, seq, role, created, disabled, gpu_seconds, gpu_seconds_at, number) VALUES ('ada', 1, 'researcher', 1772366400000000, FALSE, 60.5, 1772366460000000, 7);
INSERT INTO tokens (id, seq, kind, owner, hash, scope, note, class, pool, uses_left, created, expires, revoked)
VALUES ('t1', 1, 'access', 'ada', 'f00', 'tokens', 'laptop', '', '', 0, 1772366400000000, 1803902400000000, FALSE);
INSERT INTO events (seq, at, kind, actor, owner, job, run, node, from_state, to_state, reason)
VALUES (1, 1772366400000000, 'node.joined', 'node/gpu-1', '', '', '', 'gpu-1', '', 'ready', 'joined'),
(2, 1772366401000000, 'job.submitted', 'ada', 'ada', 'j2', '', '', '', 'pending', 'submitted'),
(3, 1772366470000000, 'job.started', 'node/gpu-1', 'ada', 'j2', 'j2.2', 'gpu-1', 'starting', 'running', 'all processes run');
INSERT INTO orders (order_key, run, job, epoch, rank, node, stop, launch)
VALUES ('j2.2/0', 'j2.2', 'j2', 2, 0, 'gpu-1', '', '{"name":"train","owner":"ada","command":"python train.py","gpus":[0],"cpus":"8","memory":"32GB","grace":"30s","log_limit":1073741824,"nodes":["10.0.0.1"],"master_port":29500}');
INSERT INTO leases (num, id, seq, state, owner, project, job, requested, ended, doc)
VALUES (1, 'l1', 4, 'active', 'ada', 'vision', 'j2', 1772366400000000, 0, '{"ID":"l1","Seq":4,"Offer":{"name":"aws/g5.xlarge/us-east-1","provider":"aws","type":"g5.xlarge","region":"us-east-1","cpus":"4","memory":"16GB","hourly":"$1.006"},"State":"active","Owner":"ada","Project":"vision","Job":"j2","Requested":"2026-03-01T12:00:00Z","Instance":"i-1","Node":"gpu-1","Billed":-1}');
INSERT INTO postings (seq, node, class, gpu, lease, offer, from_at, to_at, account, owner, project, job, run, gpus_milli, node_ms, gpu_ms, node_cost, energy_cost, energy)
VALUES (7, 'gpu-1', 'local', 'A100', '', '', 1772366400000000, 1772366460000000, 'use', 'ada', 'vision', 'j1', 'j1.1', 1000, 60000, 60000, 0, 1000, 2000);
INSERT INTO savings (seq, at, job, owner, project, kind, money, time_ms, reason) VALUES (1, 1772366400000000, 'j1', 'ada', 'vision', 'estimate', 1000000000, 0, 'it runs on gpu-1 instead of a hired node');
INSERT INTO data_uses (dataset, run, node, job, owner, cloud, at, overridden) VALUES ('cifar10', 'j1.1', 'gpu-1', 'j1', 'ada', FALSE, 1772366400000000, '');
INSERT INTO records (kind, id, seq, doc) VALUES ('dataset', 'cifar10', 1, '{"ID":"cifar10","Seq":1,"Rule":"local","Owner":"ada"}');
INSERT INTO records (kind, id, seq, doc) VALUES ('quota', 'user/ada', 1, '{"subject":{"user":"ada"},"seq":1,"gpus":4,"period":"month","on_exceeded":"ask"}');
INSERT INTO records (kind, id, seq, doc) VALUES ('meter', 'gpu-1', 0, '{"node":"gpu-1","class":"local","opened":"2026-03-01T12:00:00Z","since":"2026-03-01T12:01:00Z","status":{"rest":"idle"}}');
INSERT INTO documents (kind, id, at, doc) VALUES ('curve', 'j2/val_loss', 1772366460000000, '{"name":"val_loss"}');
INSERT INTO past_runs (num, owner, program, gpus, ran) VALUES (3, 'ada', 'prepare: prepare.py', 1, 60000000000);
INSERT INTO records (kind, id, seq, doc) VALUES ('observed', 'j2', 0, '{"Job":"j2","Seen":[{"Kind":"NVIDIA A100-SXM4-80GB","TFLOPS":312,"GPUs":1,"Nodes":1,"PerSecond":12.5,"Done":1234.5}],"Startup":5000000000,"Ran":1,"Done":1234.5,"At":"2026-03-01T12:02:00Z"}');
UPDATE leadership SET term = 7, holder = 'yard-1', address = 'https://yard-1.example.org:7443', lease = 0, renewals = 12;
INSERT INTO servers (name, address, seen) VALUES ('yard-1', 'https://yard-1.example.org:7443', 1772366470000000);
INSERT INTO agents (node, process, machine, boot, folder, started, host, path, since) VALUES ('gpu-1', 'p1', 'm1', 'b1', '801:2', 60000000000, 'gpu-1', '/var/lib/trainyard/agent', 1772366400000000);
INSERT INTO incarnations (num, mark, began, settled, reason, last_job, last_lease, last_event, last_user) VALUES (1, '0123456789abcdef0123456789abcdef', 1772366400000000, 1772366400000000, 'the first', 0, 0, 0, 100);
INSERT INTO checkpoints (num, number, id, seq, state, added, doc) VALUES (2, 1, 'j2.c1', 2, 'removed', 1772366471000000, '{"ID":"j2.c1","Seq":2,"Job":"j2","Run":"j2.2","Epoch":2,"Number":1,"Name":"step-100","Step":100,"State":"removed","Ranks":1}');
INSERT INTO checkpoints (num, number, id, seq, state, added, doc) VALUES (2, 2, 'j2.c2', 1, 'stored', 1772366472000000, '{"ID":"j2.c2","Seq":1,"Job":"j2","Run":"j2.2","UID":"f00f00f00f00f00f00f00f00f00f00f0","Epoch":2,"Number":2,"Name":"step-200","Step":200,"Metric":"loss","Value":0.5,"Size":"1GB","Found":"rename","State":"stored","Written":"2026-03-01T12:01:11Z","Added":"2026-03-01T12:01:12Z","Ranks":1,"Parts":[{"Rank":0,"Node":"gpu-1","Manifest":"ab","Size":"1GB"}]}');
INSERT INTO questions (num, question, id, seq, owner, kind, state, doc) VALUES (2, 1, 'j2.q1', 3, 'ada', 'preempted', 'open', '{"ID":"j2.q1","Seq":3,"Kind":"preempted","Job":"j2","Owner":"ada","State":"open","Sentence":"preempted by other work","Options":[{"id":"pause","sentence":"pause it","action":{"verb":"pause"}}],"Asked":"2026-03-01T12:01:00Z","Since":"2026-03-01T12:01:00Z"}');
UPDATE events SET question = 'j2.q1' WHERE seq = 3;
INSERT INTO records (kind, id, seq, doc) VALUES ('project', 'vision', 1, '{"id":"vision","seq":1}');
INSERT INTO records (kind, id, seq, doc) VALUES ('member', 'vision/ada', 1, '{"project":"vision","user":"ada","seq":1}');
UPDATE tokens SET extras = '{"parent":"t0","login":true}' WHERE id = 't1';
UPDATE users SET extras = '{"max_priority":70}' WHERE id = 'ada';
INSERT INTO possessions (owner, digest, size, since) VALUES ('ada', 'sha256:12', 120, 1772366401000000), ('ada', 'sha256:34', 1000, 1772366401000000);
UPDATE events SET token = 't1', address = '10.0.0.7', calls = 2 WHERE seq = 2;
UPDATE nodes SET identity = '{"issued":"2026-03-01T12:00:00Z","certificate":"ab12"}' WHERE id = 'gpu-1';
UPDATE ledger_rollup SET last = 7;
INSERT INTO ledger_totals (span, kind, start_at, doc) VALUES
('hour', 'node', 1772366400000000, 'local	use	A100		gpu-1				60000	60000	0	1000	2000
'),
('day', 'node', 1772323200000000, 'local	use	A100		gpu-1				60000	60000	0	1000	2000
'),
('hour', 'payer', 1772366400000000, 'local	use	A100				ada	vision	60000	60000	0	1000	2000
'),
('day', 'payer', 1772323200000000, 'local	use	A100				ada	vision	60000	60000	0	1000	2000
');
