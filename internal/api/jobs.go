package api

import (
	"context"
	"encoding/json"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// SubmitRequest hands in a job file. Its idempotency key travels in the header Idempotency-Key.
type SubmitRequest struct {
	File    string            `json:"file" maxLength:"1048576" doc:"the job file's text (YAML or JSON)"`
	Env     map[string]string `json:"env,omitempty" doc:"values for variables that the file requires (null) or that shall be overridden"`
	Workdir string            `json:"workdir,omitempty" maxLength:"64" doc:"digest of the uploaded manifest of the working directory"`
	DryRun  bool              `json:"dry_run,omitempty" doc:"say what would happen, change nothing"`
}

// SubmitReply lists the accepted jobs in the order of the file.
type SubmitReply struct {
	Jobs   []Job        `json:"jobs"`
	Plan   []PlannedJob `json:"plan,omitempty" doc:"for a dry run: what would happen to each job"`
	Notes  []string     `json:"notes,omitempty" doc:"what is accepted but not acted on yet"`
	Replay bool         `json:"replay,omitempty" doc:"these jobs were accepted before under the same idempotency key"`
}

// PlannedJob says what would happen to a job if it were submitted now.
type PlannedJob struct {
	Name      string    `json:"name,omitempty"`
	Resources string    `json:"resources" doc:"what it asks for, in words"`
	Fits      []id.Node `json:"fits" doc:"nodes that could run it, whether free or not; at most 20"`
	FitCount  int       `json:"fit_count"`
	Why       *Why      `json:"why" doc:"whether it would start now, and else what it would wait for"`
	Options   []Option  `json:"options,omitempty" doc:"ways to run it, priced; the first is the one that would be taken"`
}

// Job is a job as people see it.
type Job struct {
	ID        id.Job       `json:"id"`
	Seq       uint64       `json:"seq"`
	Name      string       `json:"name,omitempty"`
	Owner     id.User      `json:"owner"`
	Project   id.Project   `json:"project,omitempty"`
	State     job.State    `json:"state"`
	Status    job.Status   `json:"status" doc:"the word people see: the state, or what the job ended of"`
	Cause     job.Cause    `json:"cause,omitempty"`
	Reason    string       `json:"reason"`
	Priority  int          `json:"priority"`
	Resources string       `json:"resources" doc:"what it asks for, in words: 8x A100:80GB"`
	Submitted time.Time    `json:"submitted"`
	Since     time.Time    `json:"since"`
	Started   *time.Time   `json:"started,omitempty"`
	Ended     *time.Time   `json:"ended,omitempty"`
	ExitCode  *int         `json:"exit_code,omitempty"`
	Epoch     int          `json:"epoch" doc:"number of the newest run"`
	Nodes     []id.Node    `json:"nodes,omitempty" doc:"where it runs now"`
	FakeGPUs  bool         `json:"fake_gpus,omitempty" doc:"it runs on declared GPUs that do not exist"`
	Needs     []id.Job     `json:"needs,omitempty"`
	Pipeline  string       `json:"pipeline,omitempty"`
	Deadline  *time.Time   `json:"deadline,omitempty"`
	Expect    job.Duration `json:"expect,omitempty" doc:"how long its owner expects it to take, from its submission"`
	LateCost  job.Money    `json:"late_cost,omitempty" doc:"what each hour past the deadline costs"`
	Done      *float64     `json:"done,omitempty" doc:"units of work done by now, as its program told or its speed says; absent if that is not known"`
	Work      float64      `json:"work,omitempty" doc:"units of work in all, where known"`
	Percent   *float64     `json:"percent,omitempty" minimum:"0" maximum:"100" doc:"of the work that is done, where both are known"`
	Cost      float64      `json:"cost_usd,omitempty" doc:"rent and energy so far"`
	Budget    job.Money    `json:"budget,omitempty"`
	Forecast  *Forecast    `json:"forecast,omitempty" doc:"when it will be done; absent if nothing is known, or if it has ended"`
}

// JobDetail is a job with all that is known about it.
type JobDetail struct {
	Job
	Spec json.RawMessage `json:"spec" doc:"the job file's fields"`
	Runs []Run           `json:"runs"`
	Why  *Why            `json:"why,omitempty" doc:"for a waiting job: what it waits for"`
}

// JobPage is one page of a list of jobs, newest first.
type JobPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
}

// Run is one attempt of a job.
type Run struct {
	ID      id.Run       `json:"id"`
	Epoch   int          `json:"epoch"`
	State   job.RunState `json:"state"`
	Cause   job.Cause    `json:"cause,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Ordered time.Time    `json:"ordered"`
	Started *time.Time   `json:"started,omitempty"`
	Ended   *time.Time   `json:"ended,omitempty"`
	Ranks   []Rank       `json:"ranks"`
}

// Rank is a run's part on one node.
type Rank struct {
	Rank     int          `json:"rank"`
	Node     id.Node      `json:"node"`
	GPUs     []int        `json:"gpus,omitempty"`
	Share    float64      `json:"share,omitempty" doc:"of its one GPU, if it shares that with others"`
	State    job.RunState `json:"state"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Signal   string       `json:"signal,omitempty"`
	Cause    job.Cause    `json:"cause,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}

// Why says why a job waits, or that it would start now.
type Why struct {
	Blocker  string     `json:"blocker" enum:"none,needs,backoff,paused,resources,reserved,closed,no_node,no_fit,provisioning,limit,data" doc:"what it waits for, as one word for programs"`
	Sentence string     `json:"sentence" doc:"for people"`
	Position int        `json:"position,omitempty" doc:"place in the queue, from 1"`
	Holders  []Holder   `json:"holders,omitempty" doc:"who holds what it waits for; at most 20"`
	Start    *time.Time `json:"start,omitempty" doc:"estimated start, where run times are known"`
	Remedies []string   `json:"remedies,omitempty" doc:"what would start it now or sooner"`
}

// Holder is someone who holds what a job waits for.
type Holder struct {
	Job   id.Job     `json:"job"`
	Owner id.User    `json:"owner"`
	Node  id.Node    `json:"node"`
	GPUs  int        `json:"gpus"`
	CPUs  job.CPUs   `json:"cpus"`
	Until *time.Time `json:"until,omitempty" doc:"expected end, where known"`
}

// Submit hands in a job file. Calls with the same key give the same jobs, so
// that a call whose answer was lost can be made again; "" means no key.
func (c *Client) Submit(ctx context.Context, in SubmitRequest, key string) (SubmitReply, error) {
	var header []string
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}

	return post[SubmitReply](ctx, c, at("jobs"), in, header...)
}

// Jobs returns one page of the jobs that the filter lets through, newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	return get[JobPage](ctx, c, at("jobs"), f.query())
}

// Job returns all that is known about a job.
func (c *Client) Job(ctx context.Context, j id.Job) (JobDetail, error) {
	return get[JobDetail](ctx, c, at("jobs", string(j)), nil)
}

// CancelJob ends a job: its program is told to stop and has its grace time for it.
func (c *Client) CancelJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "cancel"), nil)
}

// KillJob ends a job at once.
func (c *Client) KillJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "kill"), nil)
}

// PauseJob stops a job so that it can be resumed.
func (c *Client) PauseJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "pause"), nil)
}

// ResumeJob lets a paused job go on.
func (c *Client) ResumeJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "resume"), nil)
}
