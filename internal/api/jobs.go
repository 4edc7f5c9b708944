package api

import (
	"encoding/json"
	"time"

	"trainyard/internal/fleet"
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
	Blocker  string     `json:"blocker" enum:"none,needs,backoff,paused,resources,reserved,closed,no_node,no_fit,hiring,limit,data" doc:"what it waits for, as one word for programs"`
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

// LogLine is one line that a run printed.
type LogLine struct {
	At     time.Time `json:"at"`
	Run    id.Run    `json:"run"`
	Rank   int       `json:"rank"`
	Stream string    `json:"stream" enum:"stdout,stderr,yard" doc:"yard marks the yard's own remarks"`
	Text   string    `json:"text" doc:"without the line end; bytes that are not UTF-8 are in raw"`
	Raw    []byte    `json:"raw,omitempty" doc:"base64 of the line where it is not UTF-8"`
	// Partial marks a piece of a very long line; the next line of the same run,
	// rank and stream continues it.
	Partial bool `json:"partial,omitempty"`
}

// LogPage is one page of a run's output.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  string    `json:"next,omitempty" doc:"cursor to go on from; absent when all has been read and the job has ended"`
	Ended bool      `json:"ended" doc:"the job has ended and this is its last page"`
}

// Node is a machine as people see it.
type Node struct {
	ID       id.Node     `json:"id"`
	Class    fleet.Class `json:"class"`
	Pool     string      `json:"pool,omitempty"`
	State    string      `json:"state" enum:"running,idle,foreign,suspect,lost,removed,error" doc:"running, idle or foreign (used by people outside the yard) for a node in order"`
	Since    time.Time   `json:"since" doc:"in this state since, as far as is known"`
	Reason   string      `json:"reason,omitempty"`
	Drained  bool        `json:"drained"`
	LastSeen *time.Time  `json:"last_seen,omitempty"`
	CPUs     job.CPUs    `json:"cpus"`
	CPUsFree job.CPUs    `json:"cpus_free"`
	Memory   job.Bytes   `json:"memory"`
	MemFree  job.Bytes   `json:"memory_free"`
	Disk     job.Bytes   `json:"disk"`
	OS       string      `json:"os"`
	Arch     string      `json:"arch"`
	Address  string      `json:"address"`
	Version  string      `json:"version" doc:"of its agent"`
	Limits   string      `json:"limits,omitempty" doc:"how it enforces what runs may use"`
	GPUs     []GPU       `json:"gpus"`
	FakeGPUs bool        `json:"fake_gpus,omitempty" doc:"its GPUs are declared, not real"`
	Jobs     []id.Job    `json:"jobs" doc:"that run on it now"`
	Runs     []NodeRun   `json:"runs" doc:"of those jobs"`
	TFLOPS   float64     `json:"tflops,omitempty" doc:"that all of its GPUs together reach"`
	Origin   string      `json:"tflops_origin,omitempty" enum:"measured,table,unknown,mixed" doc:"how that is known"`
	Watts    float64     `json:"power_limit_w,omitempty" doc:"of all of its GPUs together"`
	Draw     float64     `json:"draw_w,omitempty" doc:"that its GPUs draw with as many in use as now, as measured"`
	Price    *Price      `json:"price,omitempty" doc:"left out if nobody told what it costs"`
	Lease    *NodeLease  `json:"lease,omitempty" doc:"by which it was hired"`
}

// NodeRun is a run on a node.
type NodeRun struct {
	Run   id.Run    `json:"run"`
	Job   id.Job    `json:"job"`
	GPUs  []int     `json:"gpus,omitempty"`
	Share float64   `json:"share,omitempty" doc:"of its one GPU, if it shares that with others"`
	Since time.Time `json:"since"`
}

// Price is what a node costs in an hour.
type Price struct {
	Rent   float64 `json:"rent_usd" doc:"with all GPUs in use: to a provider, or what it was bought for, spread over its life"`
	Energy float64 `json:"energy_usd" doc:"with all GPUs in use; 0 for a hired node, whose rent has that in it"`
	Hourly float64 `json:"hourly_usd" doc:"both"`
	Unused float64 `json:"unused_usd" doc:"both, while nothing uses it"`
}

// NodeLease is by what a node was hired.
type NodeLease struct {
	ID    id.Lease         `json:"id"`
	Offer string           `json:"offer"`
	State fleet.LeaseState `json:"state"`
	Ends  *time.Time       `json:"ends,omitempty" doc:"not renewed until then, the machine ends itself"`
}

// GPU is one device as people see it.
type GPU struct {
	Index  int            `json:"index"`
	UUID   string         `json:"uuid"`
	Model  string         `json:"model"`
	Memory job.Bytes      `json:"memory"`
	Driver string         `json:"driver,omitempty"`
	State  fleet.GPUState `json:"state"`
	Job    id.Job         `json:"job,omitempty"`
	Fake   bool           `json:"fake,omitempty"`
	Error  string         `json:"error,omitempty" doc:"why it is kept out of use"`
	Since  *time.Time     `json:"since,omitempty" doc:"in this state since, as far as is known"`
	// What it can do and how that is known.
	TFLOPS    float64 `json:"tflops,omitempty" doc:"that it reaches in bf16, or the next narrower number it has"`
	Origin    string  `json:"tflops_origin,omitempty" enum:"measured,table,unknown"`
	Peak      float64 `json:"peak_tflops,omitempty" doc:"by its vendor's table"`
	Measured  float64 `json:"measured_tflops,omitempty" doc:"by a probe on this very device"`
	Bandwidth float64 `json:"bandwidth_gbs,omitempty" doc:"of its memory"`
	Watts     float64 `json:"power_limit_w,omitempty"`
	Health    string  `json:"health,omitempty" doc:"evidence that something is wrong or was"`
	// Foreign are processes outside the yard that use it.
	Foreign []ForeignProcess `json:"foreign,omitempty" doc:"processes outside the yard that use it, as far as they can be seen"`
}

// NodePage is one page of a list of nodes, by name.
type NodePage struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"`
}

// DrainRequest lets nothing new onto a node.
type DrainRequest struct {
	Stop bool `json:"stop,omitempty" doc:"also stop what runs there, so that it starts again elsewhere"`
}
