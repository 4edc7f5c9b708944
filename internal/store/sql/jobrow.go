package sql

import (
	"encoding/json"
	"fmt"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

var jobTable = &table{
	name: "jobs", key: "num", guard: true,
	columns: []string{
		"num", "id", "seq", "owner", "project", "name", "workdir", "idem_key", "key_hash", "pipeline",
		"array_num", "array_index", "state", "cause", "reason", "submitted", "since", "started", "ended", "exit_code",
		"epoch", "needs", "tried", "not_before", "avoid", "floor_memory", "floor_gpu_memory", "last_node",
		"done", "served", "stops", "cost", "paid", "extras", "spec",
	},
	fixed: []string{
		"num", "id", "owner", "name", "idem_key", "key_hash", "pipeline", "array_num", "array_index", "submitted", "spec",
	},
}

// jobNumber returns the number in a job's ID, which is the primary key of jobs.
func jobNumber(j id.Job) (int64, error) {
	num, ok := j.Number()
	if !ok || int64(num) < 0 {
		return 0, fmt.Errorf("invalid job id %q", string(j))
	}

	return int64(num), nil
}

// jobExtras is the JSON of the column extras: what is only read with
// the whole job.
type jobExtras struct {
	job.Override
	Reference job.Reference  `json:"reference,omitzero"`
	Ran       time.Duration  `json:"ran,omitempty"` // nanoseconds
	Queued    time.Time      `json:"queued,omitzero"`
	FloorOf   id.Job         `json:"floor_of,omitempty"`
	Lacked    job.Floor      `json:"lacked,omitzero"`
	Amended   *job.Amendment `json:"amended,omitempty"`
	Questions int            `json:"questions,omitempty"`
	Suspended time.Time      `json:"suspended,omitzero"`
}

func jobRow(args []any, j *job.Job) ([]any, error) {
	num, err := jobNumber(j.ID)
	if err != nil {
		return nil, err
	}

	var name string
	if j.Spec != nil {
		name = j.Spec.Name
	}

	array, err := arrayNumber(j.Array)
	if err != nil {
		return nil, err
	}

	var spec []byte

	if array == 0 { // that of an element is in the table arrays
		spec, err = json.Marshal(j.Spec)
		if err != nil {
			return nil, fmt.Errorf("encode the spec of job %s: %w", j.ID, err)
		}
	}

	lists := [3]string{}
	for i, list := range []struct {
		value any
		size  int
	}{{j.Needs, len(j.Needs)}, {j.Tried, len(j.Tried)}, {j.Avoid, len(j.Avoid)}} {
		lists[i], err = encodeList(list.value, list.size)
		if err != nil {
			return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
		}
	}

	extras := ""

	more := jobExtras{j.Override, j.Reference, j.Ran, j.Queued, j.FloorOf, j.Lacked, j.Amended, j.Questions, j.Suspended}
	if more != (jobExtras{}) {
		text, err := json.Marshal(more)
		if err != nil {
			return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
		}

		extras = clean(string(text))
	}

	return append(
		args,
		num,
		string(j.ID),
		int64(j.Seq),
		clean(string(j.Owner)),
		clean(string(j.Project)),
		clean(name),
		clean(j.Workdir),
		clean(j.Key),
		clean(j.KeyHash),
		clean(j.Pipeline),
		array,
		int64(j.Index),
		string(j.State),
		string(j.Cause),
		clean(j.Reason),
		micros(j.Submitted),
		micros(j.Since),
		micros(j.Started),
		micros(j.Ended),
		int64(j.ExitCode),
		int64(j.Epoch),
		lists[0],
		lists[1],
		micros(j.NotBefore),
		lists[2],
		int64(j.Floor.Memory),
		int64(j.Floor.GPUMemory),
		clean(string(j.Last)),
		j.Done,
		j.Served,
		int64(j.Stops),
		j.Cost,
		j.Paid,
		extras,
		string(spec),
	), nil
}

// storedJob is a job whose lists and spec have not been decoded yet. Decoding is most of the work
// and may be done by other goroutines.
type storedJob struct {
	job                       job.Job
	needs, tried, avoid, spec string
	extras                    string
	array                     int64 // number of its array, whose spec it has; 0 if it is in none
}

func scanJob(row scanner) (storedJob, error) {
	var s storedJob
	var num int64
	var name string // redundant: the spec has it too
	j := &s.job
	err := row.Scan(
		&num,
		(*string)(&j.ID),
		&j.Seq,
		(*string)(&j.Owner),
		(*string)(&j.Project),
		&name,
		&j.Workdir,
		&j.Key,
		&j.KeyHash,
		&j.Pipeline,
		&s.array,
		&j.Index,
		(*string)(&j.State),
		(*string)(&j.Cause),
		&j.Reason,
		timeColumn{&j.Submitted},
		timeColumn{&j.Since},
		timeColumn{&j.Started},
		timeColumn{&j.Ended},
		&j.ExitCode,
		&j.Epoch,
		&s.needs,
		&s.tried,
		timeColumn{&j.NotBefore},
		&s.avoid,
		(*int64)(&j.Floor.Memory),
		(*int64)(&j.Floor.GPUMemory),
		(*string)(&j.Last),
		&j.Done,
		&j.Served,
		&j.Stops,
		&j.Cost,
		&j.Paid,
		&s.extras,
		&s.spec,
	)

	if s.array > 0 {
		j.Array = id.NewArray(uint64(s.array))
	}

	return s, err
}

// decode returns the job. specs has the job files of arrays.
func (s *storedJob) decode(specs map[int64]*job.Spec) (job.Job, error) {
	j := s.job

	var more jobExtras
	for _, part := range []struct {
		text string
		into any
	}{{s.needs, &j.Needs}, {s.tried, &j.Tried}, {s.avoid, &j.Avoid}, {s.extras, &more}, {s.spec, &j.Spec}} {
		if err := decodeList(part.text, part.into); err != nil {
			return job.Job{}, fmt.Errorf("decode job %s: %w", j.ID, err)
		}
	}

	if s.array > 0 {
		j.Spec = specs[s.array]
		if j.Spec == nil {
			return job.Job{}, fmt.Errorf("decode job %s: its array %s is not there", j.ID, j.Array)
		}
	}

	j.Override, j.Reference, j.Ran, j.Queued = more.Override, more.Reference, more.Ran, more.Queued
	j.FloorOf, j.Lacked, j.Amended, j.Questions = more.FloorOf, more.Lacked, more.Amended, more.Questions
	j.Suspended = more.Suspended
	j.Spec = j.Amended.Apply(j.Spec) // its column has it as submitted

	return j, nil
}

var runTable = &table{
	name:  "runs",
	key:   "num, epoch",
	guard: true,
	columns: []string{
		"num",
		"epoch",
		"id",
		"seq",
		"state",
		"cause",
		"reason",
		"ordered",
		"started",
		"ended",
		"stop",
		"stop_for",
		"ranks",
		"uid",
	},
	fixed: []string{"num", "epoch", "id", "uid"},
}

func runRow(args []any, r *job.Run) ([]any, error) {
	num, err := jobNumber(r.Job)
	if err != nil {
		return nil, err
	}
	if r.ID != id.NewRun(r.Job, r.Epoch) {
		return nil, fmt.Errorf("invalid id %q of run %d of job %s", string(r.ID), r.Epoch, r.Job)
	}

	ranks, err := encodeList(r.Ranks, len(r.Ranks))
	if err != nil {
		return nil, fmt.Errorf("encode run %s: %w", r.ID, err)
	}

	return append(args, num, int64(r.Epoch), string(r.ID), int64(r.Seq), string(r.State), string(r.Cause), clean(r.Reason),
		micros(r.Ordered), micros(r.Started), micros(r.Ended), string(r.Stop), string(r.StopFor), ranks,
		clean(string(r.UID))), nil
}

func readRun(row scanner) (job.Run, error) {
	var r job.Run
	var num uint64
	var ranks string

	err := row.Scan(
		&num,
		&r.Epoch,
		(*string)(&r.ID),
		&r.Seq,
		(*string)(&r.State),
		(*string)(&r.Cause),
		&r.Reason,
		timeColumn{
			&r.Ordered,
		},
		timeColumn{&r.Started},
		timeColumn{&r.Ended},
		(*string)(&r.Stop),
		(*string)(&r.StopFor),
		&ranks,
		(*string)(&r.UID),
	)
	if err != nil {
		return job.Run{}, err
	}

	r.Job = id.NewJob(num)
	if err := decodeList(ranks, &r.Ranks); err != nil {
		return job.Run{}, fmt.Errorf("decode run %s: %w", r.ID, err)
	}

	return r, nil
}

// jobNode records that a job has or had a run on a node.
type jobNode struct {
	node id.Node
	job  id.Job
}

var jobNodeTable = &table{name: "job_nodes", key: "node, num", columns: []string{"node", "num"}, frozen: true}

func jobNodeRow(args []any, n *jobNode) ([]any, error) {
	num, err := jobNumber(n.job)
	return append(args, clean(string(n.node)), num), err
}
