package spec

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
)

// field is one key of the job file.
type field struct {
	name    string
	kind    kind    // how its value is written
	fields  []field // of a mapping that has keys of its own; then there is no kind
	list    *list   // there may be several of these mappings, as a list
	doc     string
	def     string   // the default, as it would be written; "" if there is none
	example string   // a value, as it is written behind the key
	also    []string // what other tools call it
	later   string   // what is accepted and not acted on yet
	must    bool
}

// list is a list of mappings. The fields of one read and write the newest entry.
type list struct {
	most int // entries
	add  func(*job.Spec)
	each func(*job.Spec) []*job.Spec // a spec for each entry that has this one alone
}

// words says what kind of value it takes, for a sentence such as "must be a duration".
func (f field) words() string {
	switch {
	case f.list != nil:
		return "a list of mappings"
	case f.fields != nil:
		return "a mapping"
	}

	return f.kind.words
}

// kind is a way in which values are written: how to say it, how to describe it
// to an editor, how to read it into a spec and how to write it from one.
type kind struct {
	words  string
	schema func() schema
	read   func(v value)
	write  func(s *job.Spec) (*yaml.Node, error) // nil if the spec does not have it
}

// jobFields is the table of all keys of a job, in the order in which they are
// written and explained. It is the only place that knows them.
func jobFields() []field { return allFields }

// allFields is made once: every submission is read by it.
var allFields = makeFields()

func makeFields() []field {
	var all []field
	all = append(all, workFields()...)
	all = append(all, resourceFields())
	all = append(all, aimFields()...)

	return append(all, careFields()...)
}

// workFields say what the job is.
func workFields() []field {
	return []field{
		{
			name:    "name",
			kind:    nameKind(func(s *job.Spec) *string { return &s.Name }),
			example: "resnet50-cifar",
			also:    []string{"job_name"},
			doc:     "The name of the job. In a file with several jobs each must have its own.",
		},
		{
			name:    "project",
			kind:    nameKind(func(s *job.Spec) *string { return &s.Project }),
			example: "vision",
			also:    []string{"workspace", "account"},
			doc:     "The project that the job belongs to. Without it the job belongs to no project.",
		},
		{
			name:    "workdir",
			kind:    pathKind(func(s *job.Spec) *string { return &s.Workdir }),
			example: ".",
			also:    []string{"working_dir", "repo", "repos"},
			doc: "The directory that is uploaded and in which the job runs, relative to the job file. Without it nothing " +
				"is uploaded.",
		},
		{
			name:    "setup",
			kind:    commandKind(func(s *job.Spec) *string { return &s.Setup }),
			example: "pip install -r requirements.txt",
			also:    []string{"prerequisites", "init", "install"},
			doc: "Shell commands that prepare the node before the job. They run once per node for the same commands and " +
				"files.",
		},
		{
			name:    "run",
			kind:    commandKind(func(s *job.Spec) *string { return &s.Run }),
			example: "python train.py --lr 0.1",
			must:    true,
			also:    []string{"command", "commands", "cmd", "entrypoint", "script"},
			doc: "The shell commands of the job. They are started once on each node, by bash -e (sh -e where there is " +
				"no bash): the first command that fails ends the job.",
		},
		{
			name:    "image",
			kind:    imageKind(),
			example: "pytorch/pytorch:2.6.0",
			also:    []string{"image_id", "docker_image", "container"},
			doc: "The container image that setup and run are executed in, as the user of the job and without privileges. It " +
				"needs a shell. Its environment variables are set, those of env override them; its entrypoint and user are not " +
				"used. Without a registry in its name it is from Docker Hub. The job runs on nodes with podman or Docker.",
		},
		{
			name:    "registry_auth",
			kind:    registryAuthKind(),
			example: "GHCR_LOGIN",
			also:    []string{"image_pull_secrets", "registry_credentials"},
			doc: "The name of a stored secret with the credentials for the registry of image, as USER:PASSWORD. The program " +
				"does not get it. Without it the credentials of the node are used, if its operator has given it some.",
		},
		pythonField(),
		{
			name:    "framework",
			kind:    lineKind(func(s *job.Spec) *string { return &s.Framework }),
			example: "pytorch",
			doc: "The framework that the program uses. Forecasts are based on past jobs with the same framework, model " +
				"and params.",
		},
		{name: "model", fields: modelFields(), example: "{kind: cnn, task: vision, params: 25.6M}",
			doc: "The model that is trained. Forecasts compare the job with past jobs by it."},
		{
			name:    "params",
			kind:    paramsKind(),
			example: "{lr: 0.1, batch_size: 128}",
			also:    []string{"hyperparameters", "parameters"},
			doc: "The hyperparameters of the job. {{lr}} in run and env stands for the value of lr, and the program finds it " +
				"in TRAINYARD_PARAM_lr. trainyard submit --set lr=0.3 gives another value of the same type. A parameter may be " +
				"declared as {type: number, default: 0.1, min: 0, max: 1} or {type: string, one_of: [adam, sgd]}; without a " +
				"default a value must be given. Forecasts compare the job with past jobs by them.",
		},
		arrayField(),
		{
			name:    "data",
			kind:    namesKind("a dataset or a list of datasets", func(s *job.Spec) *[]string { return &s.Data }),
			example: "[cifar10]",
			also: []string{
				"datasets",
				"dataset",
			},
			doc: "The named datasets that the job reads. It runs only where the place rules of all of them allow it; the " +
				"path of each is in TRAINYARD_DATA_NAME.",
		},
	}
}

// model returns the model of a spec, made if there is none.
func model(s *job.Spec) *job.Model {
	if s.Model == nil {
		s.Model = &job.Model{}
	}

	return s.Model
}

func modelFields() []field {
	return []field{
		{
			name:    "kind",
			kind:    lineKind(func(s *job.Spec) *string { return &model(s).Kind }),
			example: "cnn",
			doc:     "The architecture of the model.",
		},
		{
			name:    "task",
			kind:    lineKind(func(s *job.Spec) *string { return &model(s).Task }),
			example: "vision",
			doc:     "What it is trained for.",
		},
		{
			name:    "params",
			kind:    amountKind("number of parameters", 1, func(s *job.Spec) *float64 { return &model(s).Params }),
			example: "25.6M",
			also:    []string{"size", "parameters"},
			doc:     "The number of parameters.",
		},
	}
}

// resourceFields say what each node of a run must give.
func resourceFields() field {
	return field{
		name:    "resources",
		example: "{gpus: 1, memory: 32GB}",
		doc:     "What each node of a run must provide.",
		fields: slices.Concat([]field{
			{name: "gpus", kind: countKind(func(s *job.Spec) *job.Range { return &s.Resources.GPUs }, 0, maxGPUs), example: "4",
				def: "0, or 1 if another field asks for a GPU", also: []string{"num_gpus", "slots", "slots_per_trial", "gpu_count"},
				doc: "GPUs per node. With a range a run takes as many as are free when it starts."},
			{
				name:    "gpu",
				kind:    gpuKind(),
				example: "[A100:80GB, H100]",
				also:    []string{"accelerators", "accelerator", "gpu_type"},
				doc:     "Acceptable GPU models. A model may carry its memory and the number of GPUs, as in A100:80GB:8.",
			},
			{name: "gpu_memory", kind: gpuMemoryKind(), example: "24GB..",
				doc: "Memory of each GPU. 24GB means at least 24GB. With gpu_share it is how much of the memory of its GPU the " +
					"job may have; allocating more fails as if the GPU had no more. Without it that is the share of the memory."},
		}, shareFields(), []field{
			{
				name:    "nodes",
				kind:    countKind(func(s *job.Spec) *job.Range { return &s.Resources.Nodes }, 1, maxNodes),
				example: "2",
				def:     "1",
				also:    []string{"num_nodes", "instances", "replicas"},
				doc:     "Number of nodes. With a range a run takes as many as are free when it starts.",
			},
			{
				name:    "same_gpu",
				kind:    flagKind(func(s *job.Spec) *bool { return &s.Resources.SameGPU }),
				example: "true",
				def:     "false",
				also:    []string{"homogeneous", "same_node_type"},
				doc: "All nodes of the job must have the same GPU model. Otherwise a job on several nodes prefers such nodes and " +
					"takes others where they let it start so much earlier that this pays, at the speed of the slowest.",
			},
			{
				name:    "cpus",
				kind:    cpusKind(),
				example: "8",
				def:     "1",
				also:    []string{"cpu", "vcpus"},
				doc:     "CPU cores per node; 0.5 is half a core.",
			},
			{name: "memory", kind: memoryKind(), example: "32GB", also: []string{"mem", "ram"},
				doc: "Memory per node, such as 32GB or 512MB. A run that uses more is stopped. Without it there is no limit."},
		}),
	}
}

// aimFields say what the researcher wants of the job.
func aimFields() []field {
	return []field{
		{
			name:    "place",
			kind:    choiceKind(func(s *job.Spec) *job.Place { return &s.Place }, job.PlaceAny, job.PlaceLocal, job.PlaceCloud),
			example: "local",
			def:     "any",
			also:    []string{"where", "location", "infra"},
			doc: "Where the job may run: on the team's own nodes (local), on reserved and on-demand cloud nodes (cloud), " +
				"or any.",
		},
		{
			name:    "pool",
			kind:    namesKind("a pool or a list of pools", func(s *job.Spec) *[]string { return &s.Pools }),
			example: "a100",
			also:    []string{"partition", "queue", "fleet"},
			doc: "The pools of nodes that the job may run on, any of them; nodes join a pool with their token. No node is " +
				"provisioned for such a job.",
		},
		{
			name:    "nodes",
			kind:    nodesKind(func(s *job.Spec) *[]string { return &s.Nodes }),
			example: "[gpu-1, gpu-2]",
			also:    []string{"nodelist", "hosts"},
			doc: "The names of the nodes that the job may run on, any of them. How many it needs is resources.nodes. No node " +
				"is provisioned for such a job.",
		},
		{
			name:    "labels",
			kind:    labelsKind(),
			example: "[ssd, zone=a]",
			also:    []string{"constraint", "constraints", "node_selector"},
			doc: "Labels that a node must have, all of them, for the job to run there; operators declare them with --labels " +
				"of the agent. No node is provisioned for such a job.",
		},
		{
			name:    "avoid",
			kind:    nodesKind(func(s *job.Spec) *[]string { return &s.Avoid }),
			example: "[gpu-3]",
			also:    []string{"exclude", "not_nodes"},
			doc:     "The names of nodes that the job never runs on.",
		},
		{
			name: "objective",
			kind: choiceKind(
				func(s *job.Spec) *job.Objective { return &s.Objective },
				job.ObjectiveTime,
				job.ObjectiveCost,
				job.ObjectiveBalanced,
			),
			example: "time",
			def:     "balanced",
			also:    []string{"goal", "optimize"},
			doc:     "What to optimize for: time, cost, or a balance of both.",
		},
		{
			name:    "priority",
			kind:    wholeKind(func(s *job.Spec) *int { return &s.Priority }, 0, maxRank),
			example: "10",
			def:     "0",
			also:    []string{"prio"},
			doc:     "From 0 to 100; jobs with a higher priority go first.",
		},
		{
			name:    "expect",
			kind:    durationKind(func(s *job.Spec) *job.Duration { return &s.Expect }, minTime, maxTime),
			example: "6h",
			also:    []string{"expected", "estimate", "estimated_duration"},
			doc: "How long you expect the job to take on the hardware it asks for, set-up included, waiting not. If it asks " +
				"for no GPU model, the most common one of the nodes that could run it is meant; on other GPUs the run time is " +
				"scaled by TFLOPS and number. The schedule uses it until the running job has a forecast of its own. It never " +
				"stops the job, which is marked as over expect when it is estimated to run longer.",
		},
		{
			name:    "max_duration",
			kind:    durationKind(func(s *job.Spec) *job.Duration { return &s.MaxDuration }, minTime, maxTime),
			example: "12h",
			also: []string{
				"timeout",
				"time_limit",
				"walltime",
				"time",
			},
			doc: "A run that takes longer is stopped. Without it there is no limit.",
		},
		interactiveField(),
		{name: "deadline", kind: deadlineKind(), example: "2026-12-01T09:00", also: []string{"due"},
			doc:   "When the job should be finished. Without a zone it is in the time zone of the submitter.",
			later: "used by the policies rules, edf and andreas; others only store and show it."},
		{
			name:    "late_cost",
			kind:    moneyKind(func(s *job.Spec) *job.Money { return &s.LateCost }, 1),
			example: "$2.50",
			also:    []string{"penalty", "tardiness_cost"},
			doc:     "The cost of each hour past the deadline. Requires a deadline.",
			later:   "used by the policies rules and andreas; others only store and show it.",
		},
		speedField(),
		{
			name:    "budget",
			kind:    moneyKind(func(s *job.Spec) *job.Money { return &s.Budget }, 10_000),
			example: "$40",
			also:    []string{"max_cost", "max_price"},
			doc: "What all runs of the job together may cost. When it is used up the run is stopped and the job is " +
				"paused until its owner decides: trainyard resume lets it spend the same amount again.",
		},
		{name: "target", fields: targetFields(), example: "{metric: val_loss, at_most: 0.35}",
			doc: "The metric value that the job should reach; exactly one of at_most and at_least. " +
				"Trainyard forecasts when it is reached and records when it was; the job is not stopped then: the program finds " +
				"the target in TRAINYARD_TARGET and may stop itself."},
		metricsField(),
	}
}

// target returns the target of a spec, made if there is none.
func target(s *job.Spec) *job.Target {
	if s.Target == nil {
		s.Target = &job.Target{}
	}

	return s.Target
}

func targetFields() []field {
	return []field{
		{
			name:    "metric",
			kind:    lineKind(func(s *job.Spec) *string { return &target(s).Metric }),
			example: "val_loss",
			must:    true,
			doc:     "The name of the metric.",
		},
		{
			name:    "at_most",
			kind:    numberKind(func(s *job.Spec) **float64 { return &target(s).AtMost }),
			example: "0.35",
			also:    []string{"max", "below"},
			doc:     "Reached when the metric is this or less.",
		},
		{
			name:    "at_least",
			kind:    numberKind(func(s *job.Spec) **float64 { return &target(s).AtLeast }),
			example: "0.9",
			also:    []string{"min", "above"},
			doc:     "Reached when the metric is this or more.",
		},
	}
}

// checkpoint returns the checkpoint of a spec, made if there is none.
func checkpoint(s *job.Spec) *job.Checkpoint {
	if s.Checkpoint == nil {
		s.Checkpoint = &job.Checkpoint{}
	}

	return s.Checkpoint
}

// keepFields say which checkpoints are kept.
func keepFields() []field {
	return []field{
		{
			name:    "last",
			kind:    optional(wholeKind(func(s *job.Spec) *int { return &checkpoint(s).Keep.Last }, 1, maxKept)),
			example: "2",
			also:    []string{"newest"},
			doc:     fmt.Sprintf("How many of the newest are kept; %d if it is not given.", job.DefaultKept),
		},
		{
			name:    "best",
			kind:    optional(wholeKind(func(s *job.Spec) *int { return &checkpoint(s).Keep.Best }, 1, maxKept)),
			example: "1",
			also:    []string{"top", "top_k"},
			doc:     "How many of the best by the metric are kept as well; none if it is not given.",
		},
		{
			name:    "metric",
			kind:    lineKind(func(s *job.Spec) *string { return &checkpoint(s).Keep.Metric }),
			example: "val_loss",
			also:    []string{"monitor", "metric_for_best_model"},
			doc:     "The metric by which the best ones are chosen; if it is not given, that of each checkpoint.",
		},
		{
			name:    "mode",
			kind:    choiceKind(func(s *job.Spec) *job.KeepMode { return &checkpoint(s).Keep.Mode }, job.KeepMin, job.KeepMax),
			example: "max",
			also:    []string{"greater_is_better"},
			doc:     "Whether small (min) or large (max) values of the metric are good; min if it is not given.",
		},
	}
}

// optional is a kind of integer that is left out when it is written, if it is zero.
func optional(k kind) kind {
	write := k.write
	k.write = func(s *job.Spec) (*yaml.Node, error) {
		n, err := write(s)
		if n != nil && n.Value == "0" {
			n = nil
		}

		return n, err
	}

	return k
}

// onOOM returns what a spec says about memory that runs out, made if there is nothing.
func onOOM(s *job.Spec) *job.OnOOM {
	if s.OnOOM == nil {
		s.OnOOM = &job.OnOOM{}
	}

	return s.OnOOM
}

// oomFields say what may be tried after a job ran out of memory.
func oomFields() []field {
	return []field{
		{
			name:    "attempts",
			kind:    optional(wholeKind(func(s *job.Spec) *int { return &onOOM(s).Attempts }, 1, maxRetry)),
			example: "4",
			also:    []string{"retries", "max_retries", "tries"},
			doc:     "How often the job is run again after it ran out of memory; twice if it is not given.",
		},
		{
			name:    "max_gpus",
			kind:    optional(wholeKind(func(s *job.Spec) *int { return &onOOM(s).MaxGPUs }, 2, maxGPUs)),
			example: "4",
			also:    []string{"gpus", "shard"},
			doc: "The program divides what it has in GPU memory among its GPUs, so that more of them help: the next run gets " +
				"twice as many on each node, up to this number. Tried if no GPU with more memory can be had.",
		},
		{
			name:    "halve",
			kind:    lineKind(func(s *job.Spec) *string { return &onOOM(s).Halve }),
			example: "BATCH_SIZE",
			also:    []string{"batch", "batch_size"},
			doc: "A variable of env with the size of the batch, which the next run finds halved. Tried last, because " +
				"it changes what is computed.",
		},
	}
}

// careFields say how the job is looked after.
func careFields() []field {
	return []field{
		{
			name:    "checkpoint",
			example: "{dir: ckpt, every: 10m}",
			doc: "Where and how often the program writes checkpoints. Only jobs with this field are preempted by " +
				"policies that do so.",
			fields: []field{
				{
					name:    "dir",
					kind:    insideKind(func(s *job.Spec) *string { return &checkpoint(s).Dir }),
					example: "ckpt",
					also:    []string{"path", "folder"},
					doc: "A directory in the working directory. Its path is in TRAINYARD_CHECKPOINT_DIR. Before the next run " +
						"starts, on whatever node, it holds the newest checkpoint of the catalogue.",
				},
				{
					name:    "every",
					kind:    durationKind(func(s *job.Spec) *job.Duration { return &checkpoint(s).Every }, minTime, maxTime),
					example: "10m",
					also: []string{
						"interval",
					},
					doc: "How often the program saves a checkpoint. It finds the seconds in TRAINYARD_CHECKPOINT_EVERY; the Python " +
						"package obeys it. It is also used to estimate how much work a failed run has saved.",
				},
				{
					name:    "snapshot",
					kind:    flagKind(func(s *job.Spec) *bool { return &checkpoint(s).Snapshot }),
					example: "true",
					doc: "For a program that saves no checkpoints, on one node with at most one GPU: when the job is preempted, " +
						"moved or paused, the agent saves the whole program within the grace period, and the next run continues it. " +
						"Only nodes run it that can do this (trainyard nodes NODE).",
				},
				{
					name:    "keep",
					fields:  keepFields(),
					example: "{last: 2, best: 1, metric: val_loss}",
					also:    []string{"retain", "keep_last", "save_top_k", "save_total_limit"},
					doc: "Which checkpoints are kept in the catalogue, beside those that are pinned. The newest one is always " +
						"kept. What the program deletes in its directory is not deleted from the catalogue.",
				},
			},
		},
		{
			name:    "outputs",
			kind:    outputsKind(),
			example: "[ckpt/best.pt, \"runs/**\"]",
			also:    []string{"output", "artifacts", "results"},
			doc: "Files of the working directory that are kept when a run ends, also when it has failed, as paths or " +
				"patterns: * is any text, ** any folders, and a folder stands for all in it. trainyard fetch gets them.",
		},
		{
			name:    "grace",
			kind:    durationKind(func(s *job.Spec) *job.Duration { return &s.Grace }, minTime, maxGrace),
			example: "1m",
			def:     "30s",
			also: []string{
				"stop_duration",
				"grace_period",
			},
			doc: "How long a program may take to stop (SIGTERM) before it is killed (SIGKILL), from 1s to 1h.",
		},
		{name: "retry", kind: wholeKind(func(s *job.Spec) *int { return &s.Retry }, 0, maxRetry), example: "3", def: "0",
			also: []string{"retries", "max_retries", "max_restarts", "job_recovery"},
			doc:  "How often the job is retried after its program failed. Runs lost to a node failure are always retried."},
		{
			name:    "on_oom",
			fields:  oomFields(),
			example: "{max_gpus: 4, halve: BATCH_SIZE}",
			also:    []string{"oom"},
			doc: "What may be tried after the job ran out of memory, beside nodes with more memory, which are always tried " +
				"first. Each run continues from the last checkpoint. If nothing is left to try, the owner is asked.",
		},
		{
			name:    "needs",
			kind:    needsKind(),
			example: "[prepare-data]",
			also: []string{
				"depends_on",
				"depends",
				"dependencies",
			},
			doc: "Jobs that must have succeeded first: those of the same file by their names, jobs that were submitted " +
				"before by their ids (j12) or as the newest of a name (prep@last), which is looked up at submission.",
		},
		{
			name:    "after",
			kind:    choiceKind(func(s *job.Spec) *job.After { return &s.After }, job.AfterSuccess, job.AfterAny),
			example: "any",
			def:     string(job.AfterSuccess),
			doc:     "How the jobs of needs must have ended: with success, or any way.",
		},
		{
			name:    "every",
			kind:    everyKind(),
			example: `"0 3 * * *"`,
			also:    []string{"schedule", "cron"},
			doc: "How often the jobs of the file are submitted: an interval (6h), or the five fields of a crontab in UTC " +
				"(minute, hour, day of the month, month, day of the week), or @hourly, @daily, @weekly or @monthly. Submitting " +
				"the file adds a schedule, which trainyard schedules lists and stops. In the first job of the file.",
		},
		{
			name:    "overlap",
			kind:    choiceKind(func(s *job.Spec) *job.Overlap { return &s.Overlap }, job.OverlapSkip, job.OverlapAllow),
			example: "allow",
			def:     string(job.OverlapSkip),
			doc: "What happens when the time of every has come and jobs of last time have not ended: nothing is submitted " +
				"(skip), or jobs are submitted all the same (allow).",
		},
		{
			name:    "env",
			kind:    envKind(),
			example: "{SEED: 1}",
			also:    []string{"envs", "environment", "environment_variables"},
			doc: "Environment variables, as a mapping or as a list of KEY=VALUE. A value of null, or a list entry KEY, " +
				"takes the value from the submitter's environment.",
		},
		{
			name:    "secrets",
			kind:    secretsKind(),
			example: "[WANDB_API_KEY, GOOGLE_APPLICATION_CREDENTIALS:file]",
			also:    []string{"secret"},
			doc: "Names of stored secrets that the program gets as environment variables. KEY:file puts the value into a " +
				"file, and its path into the variable. trainyard secrets set stores a secret.",
		},
	}
}
