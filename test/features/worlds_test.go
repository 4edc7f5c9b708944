package features_test

// world is a small yard in which a feature matters, and what must come of it under any policy.
type world struct {
	name  string
	text  string                 // a scenario without its policy
	wants func(r *result) string // what is wrong, "" if nothing is
}

// feature is a column of the table.
type feature struct {
	name   string
	means  string // what works, in the words of the page
	worlds []world
}

// features lists the columns. Each world is chosen so that a policy that does not know of the
// feature gets it wrong: what the feature forbids would be possible, and what it needs does not
// come by itself.
func features() []feature {
	return []feature{
		{"clouds", "nodes are provisioned for jobs that no node of the yard can run or that would wait for too long, " +
			"kept for them while they boot, and released when they are idle", []world{
			{"only an offer can run it", `
node own 1x T4:16GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
job it at 1m user ann gpus 1 gpu A100 lasts 30m expect 30m
job other at 2m user bob gpus 1 lasts 10m expect 10m
job last at 12h user eve gpus 1 gpu T4 place local lasts 1m expect 1m
`, all(startsAt("it", "5m"), succeeds("it"), startsAt("other", "2m"), leases(1), allReleased)},
			{"it would wait for six hours", `
node own 1x A100:40GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
job holder at 0s user eve gpus 1 place local lasts 6h expect 6h checkpoint none
job it at 1m user ann gpus 1 objective time lasts 1h expect 1h
job last at 12h user eve gpus 1 gpu A100 place local lasts 1m expect 1m
`, all(startsBy("it", "15m"), succeeds("it"), startsAt("holder", "0s"), leases(1), allReleased)},
			{"a cost-sensitive job waits", `
node own 1x A100:40GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
job holder at 0s user eve gpus 1 place local lasts 6h expect 6h checkpoint none
job it at 1m user ann gpus 1 objective cost lasts 1h expect 1h
`, all(startsAt("it", "6h"), succeeds("it"), leases(0))},
			{"a node is kept for the job that it was provisioned for", `
node own 1x T4:16GB
offer aws/a100 1x A100:40GB hourly $3 boot 10m
job holder at 0s user eve gpus 1 gpu T4 place local lasts 2h expect 2h checkpoint none
job it at 1m user ann gpus 1 gpu A100 lasts 1h expect 1h
job small at 2m user bob gpus 1 objective cost lasts 1h expect 1h
job last at 12h user eve gpus 1 gpu T4 place local lasts 1m expect 1m
`, all(startsAt("it", "11m"), succeeds("it"), succeeds("small"), leases(1), allReleased)},
		}},
		{"quotas", "what a quota forbids does not start while nodes are free, and starts when the quota allows it", []world{
			{"GPUs at once", `
node own 4x A100:40GB
quota user/ann gpus 1
job first at 0s user ann gpus 1 lasts 1h expect 1h
job second at 1m user ann gpus 1 lasts 1h expect 1h
job other at 2m user bob gpus 1 lasts 1h expect 1h
`, all(startsAt("first", "0s"), startsBetween("second", "1h", "1h2m"), startsAt("other", "2m"), succeeds("second"))},
			{"GPU-hours a day", `
node own 4x A100:40GB
quota user/ann gpu_hours 1 period day
job first at 0s user ann gpus 1 lasts 2h expect 2h
job second at 3h user ann gpus 1 lasts 1h expect 1h
job other at 3h user bob gpus 1 lasts 1h expect 1h
`, all(startsAt("first", "0s"), startsBetween("second", "24h", "24h2m"), startsAt("other", "3h"), succeeds("second"))},
			{"on-demand nodes at once", `
node own 1x T4:16GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
quota user/ann nodes 1
job first at 0s user ann gpus 1 gpu A100 lasts 1h expect 1h
job second at 1m user ann gpus 1 gpu A100 lasts 1h expect 1h
job last at 12h user eve gpus 1 gpu T4 place local lasts 1m expect 1m
`, all(startsAt("first", "4m"), startsBetween("second", "1h4m", "1h20m"), succeeds("second"), allReleased)},
		}},
		{"budgets", "nothing is provisioned that a budget does not allow, and a job that may no longer spend on nodes runs " +
			"on those of the yard", []world{
			{"too little is left", `
node own 1x T4:16GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
quota user/ann budget $1 on_exceeded ask
job poor at 0s user ann gpus 1 gpu A100 lasts 1h expect 1h
job rich at 0s user bob gpus 1 gpu A100 lasts 10h expect 10h checkpoint none
until 12h
`, all(neverStartsBefore("poor", "10h"), startsAt("rich", "4m"), leases(1))},
			{"used up, with downgrade", `
node own 1x A100:40GB hourly 2
offer aws/a100 1x A100:40GB hourly $3 boot 4m
quota user/ann budget $1 on_exceeded downgrade
job first at 0s user ann gpus 1 place local lasts 2h expect 2h checkpoint none
job second at 2h1m user bob gpus 1 place local lasts 2h expect 2h checkpoint none
job cloud at 2h1m user bob gpus 1 place cloud lasts 30m expect 30m
job it at 2h5m user ann gpus 1 objective time lasts 1h expect 1h
`, all(startsBetween("it", "4h1m", "4h3m"), succeeds("it"), succeeds("cloud"), ranOn("it", "own"))},
		}},
		{"data rules", "a job runs only where the rules of its datasets allow it, on nodes of the yard and on provisioned ones",
			[]world{
				{"the idle node is barred", `
node here local 1x A100:40GB
node there reserved 1x A100:40GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
data scans size 1GB place local at local
job holder at 0s user eve gpus 1 place local lasts 2h expect 2h checkpoint none
job free at 30s user bob gpus 1 objective time lasts 10m expect 10m
job it at 1m user ann gpus 1 objective time data scans lasts 1h expect 1h
`, all(startsBetween("it", "2h", "2h1m"), ranOn("it", "here"), succeeds("it"), startsAt("free", "30s"), leases(0))},
			}},
		{"named nodes", "a job runs only on nodes of its `pool`, only on its `nodes` and on none that it must `avoid`; it waits " +
			"for them while others are idle, and nothing is provisioned for it", []world{
			{"the pool is busy", `
node a 1x A100:40GB
node b 1x A100:40GB pool lab
offer aws/a100 1x A100:40GB hourly $3 boot 4m
job holder at 0s user eve gpus 1 on b lasts 2h expect 2h checkpoint none
job free at 30s user bob gpus 1 objective time lasts 10m expect 10m
job it at 1m user ann gpus 1 pool lab objective time lasts 1h expect 1h
`, all(startsAt("holder", "0s"), ranOn("holder", "b"), startsBetween("it", "2h", "2h1m"), ranOn("it", "b"), succeeds("it"),
				startsAt("free", "30s"), ranOn("free", "a"), leases(0))},
			{"the other node is avoided", `
node a 1x A100:40GB
node b 1x A100:40GB
job holder at 0s user eve gpus 1 avoid a lasts 2h expect 2h checkpoint none
job other at 30s user bob gpus 1 avoid b lasts 10m expect 10m
job it at 1m user ann gpus 1 avoid a objective time lasts 1h expect 1h
`, all(startsAt("holder", "0s"), ranOn("holder", "b"), startsBetween("it", "2h", "2h1m"), ranOn("it", "b"), succeeds("it"),
				startsAt("other", "30s"), ranOn("other", "a"))},
			{"two of three nodes", `
node a 1x A100:40GB
node b 1x A100:40GB
node c 1x A100:40GB
job holder at 0s user eve gpus 1 on c lasts 1h expect 1h checkpoint none
job other at 30s user bob gpus 1 on b lasts 10m expect 10m
job gang at 1m user ann nodes 2 gpus 1 on a,c lasts 30m expect 30m
`, all(startsAt("holder", "0s"), ranOn("holder", "c"), startsBetween("gang", "1h", "1h1m"), ranOn("gang", "a", "c"),
				succeeds("gang"), startsAt("other", "30s"), ranOn("other", "b"))},
			{"an elastic job", `
node a 4x A100:40GB
node b 1x A100:40GB pool lab
job it at 0s user ann gpus 1..4 pool lab work 3600 speed 1:1,4:3 start 10s checkpoint 10m
`, all(startsBy("it", "1m"), gpusBetween("it", 1, 1), ranOn("it", "b"), succeeds("it"))},
		}},
		{"multi-node jobs", "a job on several nodes starts on all of them at once or not at all, also on provisioned ones",
			[]world{
				{"one node is busy", `
node a 1x A100:40GB
node b 1x A100:40GB
job holder at 0s user eve gpus 1 lasts 1h expect 1h checkpoint none
job gang at 1m user ann nodes 2 gpus 1 lasts 30m expect 30m
`, all(startsBetween("gang", "1h", "1h1m"), ranOn("gang", "a", "b"), succeeds("gang"), startsAt("holder", "0s"))},
				{"its nodes are provisioned", `
node a 1x T4:16GB
offer aws/a100 1x A100:40GB hourly $3 boot 4m
job gang at 1m user ann nodes 2 gpus 1 gpu A100 lasts 30m expect 30m
job last at 12h user eve gpus 1 gpu T4 place local lasts 1m expect 1m
`, all(startsAt("gang", "5m"), succeeds("gang"), leases(2), allReleased)},
			}},
		{"elastic jobs", "a job that takes a range of GPUs never has fewer than its minimum, nor more than its maximum",
			[]world{
				{"beside another job", `
node a 4x A100:40GB
job other at 0s user eve gpus 1 lasts 4h expect 4h
job it at 1m user ann gpus 2..3 work 14400 speed 2:1,3:1.4 start 10s checkpoint 10m
job late at 30m user bob gpus 1 lasts 4h expect 4h
`, all(startsBy("it", "5h"), gpusBetween("it", 2, 3), succeeds("it"), succeeds("late"))},
				{"on a provisioned node", `
node a 1x T4:16GB
offer aws/a100x4 4x A100:40GB hourly $9 boot 4m
job it at 1m user ann gpus 2..4 gpu A100 work 14400 speed 2:1,4:1.8 start 10s checkpoint 10m
job last at 12h user eve gpus 1 gpu T4 place local lasts 1m expect 1m
`, all(startsAt("it", "5m"), gpusBetween("it", 2, 4), succeeds("it"), leases(1), allReleased)},
			}},
		{"checkpoints", "a job that writes no checkpoints is never preempted; one that does resumes and ends", []world{
			{"a long job without checkpoints", `
node a 1x A100:40GB
job long at 0s user eve gpus 1 work 36000 speed 1:1 checkpoint none
job short at 1h user ann gpus 1 priority 50 work 600 speed 1:1
job third at 2h user ann gpus 1 work 600 speed 1:1 deadline 1h late_cost $100
`, all(startsAt("long", "0s"), runs("long", 1), succeeds("long"), succeeds("short"), succeeds("third"))},
			{"a long job with checkpoints", `
node a 1x A100:40GB
job long at 0s user eve gpus 1 work 36000 speed 1:1 start 10s save 10s checkpoint 10m
job short at 1h user ann gpus 1 work 600 speed 1:1 start 10s checkpoint 10m
`, all(startsAt("long", "0s"), succeeds("long"), succeeds("short"))},
		}},
	}
}
