package job

import (
	"strings"
	"time"
)

// Place says where a job may run.
type Place string

// The places. Cloud means reserved and on-demand nodes.
const (
	PlaceAny   Place = "any"
	PlaceLocal Place = "local"
	PlaceCloud Place = "cloud"
	// PlaceNowhere is the place of a job whose place and the rules of its datasets exclude each
	// other.
	PlaceNowhere Place = "nowhere"
)

// Objective says what to optimize for a job.
type Objective string

// The objectives.
const (
	ObjectiveTime     Objective = "time"
	ObjectiveCost     Objective = "cost"
	ObjectiveBalanced Objective = "balanced"
)

// After says how the jobs that a job needs must have ended before it starts.
type After string

// The ways. The zero value is AfterSuccess.
const (
	AfterSuccess After = "success"
	AfterAny     After = "any" // succeeded, failed or cancelled
)

// Released reports whether a needed job in this state keeps the job waiting no more.
func (s *Spec) Released(needed State) bool {
	return needed == Succeeded || s.After == AfterAny && needed.Final()
}

// Spec is the content of a job file. Its JSON form uses the words and units of the job file, so
// that what is stored and shown is what was written.
type Spec struct {
	Name        string            `json:"name,omitempty"`
	Project     string            `json:"project,omitempty"`
	Workdir     string            `json:"workdir,omitempty"`
	Setup       string            `json:"setup,omitempty"`
	Run         string            `json:"run"`
	Image       string            `json:"image,omitempty"`
	Python      *Python           `json:"python,omitempty"` // the environment of set-up and program; nil for that of the node
	Framework   string            `json:"framework,omitempty"`
	Model       *Model            `json:"model,omitempty"`
	Params      map[string]any    `json:"params,omitempty"`
	Array       *Array            `json:"array,omitempty"` // makes a job for each of its values; nil for one job
	Data        []string          `json:"data,omitempty"`
	Resources   Resources         `json:"resources"`
	Place       Place             `json:"place"`
	Pools       []string          `json:"pool,omitempty"`   // only nodes of these pools; none for all
	Nodes       []string          `json:"nodes,omitempty"`  // only these nodes; none for all
	Avoid       []string          `json:"avoid,omitempty"`  // none of these nodes
	Labels      []string          `json:"labels,omitempty"` // only nodes that have all of these
	Objective   Objective         `json:"objective"`
	Priority    int               `json:"priority,omitempty"` // 0 … 100; higher goes first
	Expect      Duration          `json:"expect,omitempty"`
	MaxDuration Duration          `json:"max_duration,omitempty"` // stopped when a run takes longer
	Grace       Duration          `json:"grace,omitempty"`        // between SIGTERM and SIGKILL
	Interactive *Interactive      `json:"interactive,omitempty"`  // of a job that a person works in; nil for others
	Deadline    *time.Time        `json:"deadline,omitempty"`
	LateCost    Money             `json:"late_cost,omitempty"` // for each hour past the deadline
	Speed       *Speed            `json:"speed,omitempty"`
	Budget      Money             `json:"budget,omitempty"`
	Target      *Target           `json:"target,omitempty"`
	Metrics     []MetricRule      `json:"metrics,omitempty"`
	Checkpoint  *Checkpoint       `json:"checkpoint,omitempty"`
	Outputs     []string          `json:"outputs,omitempty"` // patterns of the files that are kept when a run ends
	Retry       int               `json:"retry,omitempty"`
	OnOOM       *OnOOM            `json:"on_oom,omitempty"`
	Needs       []string          `json:"needs,omitempty"` // jobs of the same file by name, others by id or as name@last
	After       After             `json:"after,omitempty"` // how what it needs must have ended
	Every       string            `json:"every,omitempty"` // how often the jobs of the file are submitted; "" for once
	Overlap     Overlap           `json:"overlap,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Secrets     []string          `json:"secrets,omitempty"`

	// RegistryAuth names the secret with the credentials for the registry of the image; "" for none.
	RegistryAuth string `json:"registry_auth,omitempty"`
}

// TextBytes is how much text a spec holds: what a server keeps in memory of a job until it has ended.
func (s *Spec) TextBytes() Bytes {
	total := len(s.Name) + len(s.Project) + len(s.Workdir) + len(s.Setup) + len(s.Run) + len(s.Image) +
		len(s.RegistryAuth) + len(s.Framework) + s.Python.textBytes()

	for _, list := range [][]string{s.Data, s.Pools, s.Nodes, s.Avoid, s.Labels, s.Needs, s.Secrets, s.Outputs} {
		for _, text := range list {
			total += len(text)
		}
	}

	for _, r := range s.Metrics {
		total += len(r.Match) + len(r.File)
	}

	if s.Array != nil {
		for _, value := range s.Array.Values {
			total += len(value)
		}
	}

	for key, value := range s.Env {
		total += len(key) + len(value)
	}

	for key, value := range s.Params {
		total += len(key)
		if text, ok := value.(string); ok {
			total += len(text)
		}
	}

	return Bytes(total)
}

// Model describes what is trained, for the forecast.
type Model struct {
	Kind   string  `json:"kind,omitempty"`
	Task   string  `json:"task,omitempty"`
	Params float64 `json:"params,omitempty"`
}

// Target is the value of a metric at which the job has reached its goal.
// Exactly one of AtMost and AtLeast is set.
type Target struct {
	Metric  string   `json:"metric"`
	AtMost  *float64 `json:"at_most,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
}

// Checkpoint says where a job saves its checkpoints and how often.
type Checkpoint struct {
	Dir   string   `json:"dir,omitempty"`
	Every Duration `json:"every,omitempty"`
	Keep  Keep     `json:"keep,omitzero"`
	// Snapshot says that the agent saves the whole program when it is stopped to continue later.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Keep says which checkpoints of a job are kept, beside the pinned ones. A zero field is as if it were not given.
type Keep struct {
	Last   int      `json:"last,omitempty"` // newest ones
	Best   int      `json:"best,omitempty"` // by the metric
	Metric string   `json:"metric,omitempty"`
	Mode   KeepMode `json:"mode,omitempty"`
}

// DefaultKept is how many of the newest checkpoints are kept if a job does not say: more than one, so that there is one
// before if the newest turns out to be corrupt.
const DefaultKept = 3

// KeepMode says which values of a metric are good.
type KeepMode string

// The modes.
const (
	KeepMin KeepMode = "min" // small values; the default
	KeepMax KeepMode = "max"
)

// Resources is what a job requests: GPUs, CPUs and Memory are per node.
type Resources struct {
	GPUs      Range     `json:"gpus"`
	GPU       []GPUKind `json:"gpu,omitempty"` // any of; empty means any model
	GPUMemory ByteRange `json:"gpu_memory,omitzero"`
	GPUShare  float64   `json:"gpu_share,omitempty"`
	// Of a job that shares its GPU; GPUMemory.Min is how much of the GPU's memory it may have.
	ShareClass ShareClass `json:"share_class,omitempty"`
	ShareLimit float64    `json:"share_limit,omitempty"`
	ShareMPS   bool       `json:"share_mps,omitempty"` // through NVIDIA MPS, beside jobs of the same owner alone
	Nodes      Range      `json:"nodes"`
	SameGPU    bool       `json:"same_gpu,omitempty"` // all nodes have the same GPU model
	CPUs       CPUs       `json:"cpus"`
	Memory     Bytes      `json:"memory,omitempty"`
}

// UsesGPUs reports whether a job has GPUs, at least if there are any to spare.
func (r *Resources) UsesGPUs() bool { return r.GPUs.Min > 0 || r.GPUs.Max > 0 }

// GPUKind names a GPU model, and its memory where one model comes with several: A100:80GB.
type GPUKind struct {
	Model  string
	Memory Bytes
}

// String writes the kind as in a job file.
func (k GPUKind) String() string {
	if k.Memory == 0 {
		return k.Model
	}

	return k.Model + ":" + k.Memory.String()
}

// MarshalText writes the kind as in a job file.
func (k GPUKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote. The count of A100:80GB:8 is not
// part of the kind; spec takes it off and puts it into Resources.GPUs.
func (k *GPUKind) UnmarshalText(text []byte) error {
	model, memory, ok := strings.Cut(string(text), ":")
	*k = GPUKind{Model: model}

	if !ok {
		return nil
	}

	return k.Memory.UnmarshalText([]byte(memory))
}

// Matches reports whether a GPU of this model and memory is of the kind. A
// model matches if its words are among the words of the GPU's name in the same
// order, so that A100 and A100-80GB accept "NVIDIA A100-SXM4-80GB" and A10 does
// not; memory matches within 7 %, because a GPU sold as 80GB reports a little
// less or more.
func (k GPUKind) Matches(model string, memory Bytes) bool {
	if k.Memory != 0 {
		ratio := float64(memory) / float64(k.Memory)
		if ratio < 0.93 || ratio > 1.07 {
			return false
		}
	}

	wanted := words(k.Model)
	for _, w := range words(model) {
		if len(wanted) > 0 && strings.EqualFold(w, wanted[0]) {
			wanted = wanted[1:]
		}
	}

	return len(wanted) == 0
}

// words splits a GPU's name: "NVIDIA A100-SXM4-80GB" has the words NVIDIA, A100, SXM4, 80GB.
func words(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == ' ' || c == '-' || c == '_' || c == '/' })
}
