package api

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// HeaderIdempotencyKey is the header of a request that takes effect only once, however often it is made.
const HeaderIdempotencyKey = "Idempotency-Key"

// SubmitRequest submits a job file. Its idempotency key travels in the header Idempotency-Key.
type SubmitRequest struct {
	File    string            `json:"file" maxLength:"1048576" doc:"job file (YAML or JSON)"`
	Env     map[string]string `json:"env,omitempty" doc:"values of environment variables: those the job file requires (null), and overrides"`
	Workdir string            `json:"workdir,omitempty" maxLength:"64" doc:"digest of the uploaded manifest of the working directory"`
	Params  map[string]string `json:"params,omitempty" maxProperties:"1000" doc:"values of parameters of the job file, as text"`
	DryRun  bool              `json:"dry_run,omitempty" doc:"validate and plan without submitting"`
}

// SubmitReply lists the accepted jobs in the order of the file.
type SubmitReply struct {
	Jobs   []Job        `json:"jobs" doc:"accepted jobs; elements of arrays are not among them"`
	Arrays []Array      `json:"arrays,omitempty" doc:"accepted arrays"`
	Plan   []PlannedJob `json:"plan,omitempty" doc:"what would happen to each job (dry run only)"`
	Notes  []string     `json:"notes,omitempty" doc:"fields that are accepted but have no effect yet"`
	Replay bool         `json:"replay,omitempty" doc:"the jobs had already been submitted with the same idempotency key"`

	Schedule *Schedule `json:"schedule,omitempty" doc:"the schedule that was added, for a file with every; no job is submitted now"`
}

// PlannedJob says what would happen to a job if it were submitted now.
type PlannedJob struct {
	Name      string    `json:"name,omitempty"`
	Resources string    `json:"resources" doc:"requested resources as text, e.g. 8× A100 80GB"`
	Fits      []id.Node `json:"fits" doc:"nodes that could run it, idle or not; at most 20"`
	FitCount  int       `json:"fit_count"`
	Why       *Why      `json:"why" doc:"whether it would start now, and if not, why"`
	Elements  int       `json:"elements,omitempty" doc:"number of jobs that its array makes; what is said is about one of them"`
	Options   []Option  `json:"options,omitempty" doc:"ways to run it with cost estimates; the first is the one that would be chosen"`
}

// Job is a job as people see it.
type Job struct {
	ID        id.Job       `json:"id"`
	Seq       uint64       `json:"seq"`
	Name      string       `json:"name,omitempty"`
	Owner     id.User      `json:"owner"`
	Project   id.Project   `json:"project,omitempty"`
	State     job.State    `json:"state"`
	Status    job.Status   `json:"status" doc:"status as displayed: the state, or how the job ended"`
	Cause     job.Cause    `json:"cause,omitempty"`
	Reason    string       `json:"reason"`
	Priority  int          `json:"priority"`
	Resources string       `json:"resources" doc:"requested resources as text, e.g. 8× A100 80GB"`
	Submitted time.Time    `json:"submitted"`
	Since     time.Time    `json:"since"`
	Started   *time.Time   `json:"started,omitempty"`
	Ended     *time.Time   `json:"ended,omitempty"`
	ExitCode  *int         `json:"exit_code,omitempty"`
	Epoch     int          `json:"epoch" doc:"number of the latest run"`
	Nodes     []id.Node    `json:"nodes,omitempty" doc:"nodes it is running on"`
	FakeGPUs  bool         `json:"fake_gpus,omitempty" doc:"runs on fake GPUs (testing only)"`
	Needs     []id.Job     `json:"needs,omitempty"`
	Pipeline  string       `json:"pipeline,omitempty"`
	Array     id.Array     `json:"array,omitempty" doc:"array of which it is an element"`
	Index     *int         `json:"array_index,omitempty" doc:"its position in that array, from 0"`
	Value     string       `json:"array_value,omitempty" doc:"its value in that array"`
	Deadline  *time.Time   `json:"deadline,omitempty"`
	Ran       job.Duration `json:"ran,omitempty" doc:"how long its runs have run so far, without the waits before and between them"`
	Expect    job.Duration `json:"expect,omitempty" doc:"how long the owner expects the job to take on the hardware it asks for, waiting not included; the job is over expect when it is estimated to run longer than that"`
	ExpectOn  *Reference   `json:"expect_on,omitempty" doc:"GPU that the expected run time is for; absent if unknown, and for jobs without GPUs"`
	LateCost  job.Money    `json:"late_cost,omitempty" doc:"cost of each hour past the deadline"`
	Done      *float64     `json:"done,omitempty" doc:"units of work completed, as reported by the program or estimated from its speed; absent if unknown"`
	Work      float64      `json:"work,omitempty" doc:"total units of work, if known"`
	Percent   *float64     `json:"percent,omitempty" minimum:"0" maximum:"100" doc:"percentage of the work completed, if known"`
	Cost      float64      `json:"cost_usd,omitempty" doc:"cost of nodes and energy so far"`
	Budget    job.Money    `json:"budget,omitempty"`
	Forecast  *Forecast    `json:"forecast,omitempty" doc:"forecast of its finish; absent if there is none or the job has ended"`
	Remarks   []string     `json:"remarks,omitempty" doc:"what its owner should know now: no progress, a loss that is NaN, a node that does not report, memory that was raised"`

	NoCheckpoint bool `json:"no_checkpoint,omitempty" doc:"the job file has no checkpoint: a run that is stopped loses its work"`
}

// Reference is the GPU that a job's expected run time is for. It is recorded when the job is submitted.
type Reference struct {
	GPU    string  `json:"gpu" doc:"model"`
	TFLOPS float64 `json:"tflops,omitempty" doc:"TFLOPS of one; absent if unknown"`
}

// JobDetail is a job with all that is known about it.
type JobDetail struct {
	Job
	Spec json.RawMessage `json:"spec" doc:"fields of the job file"`
	Runs []Run           `json:"runs"`
	Why  *Why            `json:"why,omitempty" doc:"why a pending job is not running"`

	Share *JobShare `json:"gpu_share,omitempty" doc:"part of a GPU that it has at present, and who has the rest"`

	Questions   []Question   `json:"questions,omitempty" doc:"open questions about it, which its owner or an admin may answer"`
	Outputs     []OutputSet  `json:"outputs,omitempty" doc:"output files that are kept, by rank, those of the newest run first"`
	Utilization *Utilization `json:"utilization,omitempty" doc:"what its newest run uses of its nodes, or has used; absent if nothing was measured"`

	Workdir string `json:"workdir,omitempty" doc:"digest of the manifest of its working directory, as submit takes it"`
}

// JobPage is one page of a list of jobs.
type JobPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty" doc:"cursor of the next page; absent on the last page"`

	Counts []JobCount `json:"counts,omitempty" doc:"how many jobs match, on all pages; only if asked for"`
}

// JobCount is how many jobs have a status.
type JobCount struct {
	Status job.Status `json:"status"`
	Jobs   int        `json:"jobs"`
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

	FailedRank *int `json:"failed_rank,omitempty" doc:"of a run on several nodes the rank that failed first; absent if it ended for another reason"`
}

// Rank is a run's part on one node.
type Rank struct {
	Rank     int          `json:"rank"`
	Node     id.Node      `json:"node"`
	GPUs     []int        `json:"gpus,omitempty"`
	Share    float64      `json:"share,omitempty" doc:"share of its GPU, if it shares one with other runs"`
	State    job.RunState `json:"state"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Signal   string       `json:"signal,omitempty"`
	Cause    job.Cause    `json:"cause,omitempty"`
	Reason   string       `json:"reason,omitempty"`

	PassedEnv []string `json:"passed_env,omitempty" doc:"names of the node's environment variables that the program got"`
	Digest    string   `json:"digest,omitempty" doc:"container image that it got, with its digest"`
}

// Why says why a job waits, or that it would start now.
type Why struct {
	Blocker  string     `json:"blocker" enum:"none,needs,backoff,paused,resources,reserved,closed,no_node,no_fit,provisioning,limit,data,secret,policy" doc:"machine-readable reason why it is not running"`
	Sentence string     `json:"sentence" doc:"reason as a sentence"`
	Position int        `json:"position,omitempty" doc:"position in the queue, starting at 1"`
	Holders  []Holder   `json:"holders,omitempty" doc:"jobs that hold the resources it needs; at most 20"`
	Start    *time.Time `json:"start,omitempty" doc:"estimated start; absent if unknown"`
	Remedies []string   `json:"remedies,omitempty" doc:"changes that would let it start or make room for it"`
	// Changes are those of the remedies that the call edit-job can make.
	Changes []Change `json:"changes,omitempty" doc:"remedies that are edits of the job"`

	NotBefore *time.Time `json:"not_before,omitempty" doc:"time before which it does not start unless something changes"`
}

// Change is a remedy that is an edit of the job.
type Change struct {
	Text    string   `json:"text" doc:"remedy that it carries out"`
	Set     []string `json:"set" doc:"changes as edit-job takes them"`
	RoomNow bool     `json:"room_now,omitempty" doc:"nodes have room for the job then"`
}

// Holder is someone who holds what a job waits for.
type Holder struct {
	Job   id.Job     `json:"job"`
	Owner id.User    `json:"owner"`
	Node  id.Node    `json:"node"`
	GPUs  int        `json:"gpus"`
	CPUs  job.CPUs   `json:"cpus"`
	Until *time.Time `json:"until,omitempty" doc:"estimated release; absent if unknown"`
}

// Submit submits a job file. Calls with the same key give the same jobs, so
// that a call whose answer was lost can be made again; "" means no key.
func (c *Client) Submit(ctx context.Context, in SubmitRequest, key string) (SubmitReply, error) {
	var header []string
	if key != "" {
		header = []string{HeaderIdempotencyKey, key}
	}

	return post[SubmitReply](ctx, c, at("jobs"), in, header...)
}

// Jobs returns one page of the jobs that the filter lets through, newest first unless the filter says otherwise.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	return get[JobPage](ctx, c, at("jobs"), f.query())
}

// Job returns all that is known about a job.
func (c *Client) Job(ctx context.Context, j id.Job) (JobDetail, error) {
	return get[JobDetail](ctx, c, at("jobs", string(j)), nil)
}

// FindJob returns the id of the job that somebody means by an id, a name, name@last or @last. What is an id already is
// not looked up.
func (c *Client) FindJob(ctx context.Context, handle string) (id.Job, error) {
	if h, ok := id.ParseHandle(handle); ok && h.Job != "" {
		return h.Job, nil
	}

	found, err := c.Job(ctx, id.Job(handle))

	return found.ID, err
}

// JobWithEnv returns a job of the caller's own with the values of its environment variables, which Job masks.
func (c *Client) JobWithEnv(ctx context.Context, j id.Job) (JobDetail, error) {
	return get[JobDetail](ctx, c, at("jobs", string(j)), url.Values{"env": {"true"}})
}

// CancelJob cancels a job: its program gets SIGTERM and its grace period.
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

// SaveJob asks the program of a running job to save a checkpoint and to continue.
func (c *Client) SaveJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "save"), nil)
}

// EditRequest changes fields of a job that does not run.
type EditRequest struct {
	Set []string `json:"set" minItems:"1" maxItems:"100" doc:"changes of the form KEY=VALUE: the path of a field of the job file, such as priority or resources.gpus, and its value as in a job file; without a value it is removed"`
}

// EditJob changes fields of a queued or paused job: its priority, expect, deadline, late_cost, objective, resources,
// pool, nodes and avoid.
func (c *Client) EditJob(ctx context.Context, j id.Job, changes ...string) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "edit"), EditRequest{Set: changes})
}

// ResumeJob lets a paused job go on.
func (c *Client) ResumeJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "resume"), nil)
}
