package job

import "trainyard/internal/id"

// Launch is all that an engine needs to know to start one rank of a run.
type Launch struct {
	UID    id.UID  `json:"uid,omitempty"`     // of the run
	JobUID id.UID  `json:"job_uid,omitempty"` // differs between two jobs that got the same id
	Name   string  `json:"name,omitempty"`
	Owner  id.User `json:"owner"`
	// OwnerNumber is the number of the owner, from which a node derives the account of the program.
	OwnerNumber int               `json:"owner_number,omitempty"`
	Workdir     string            `json:"workdir,omitempty"` // manifest digest
	Image       string            `json:"image,omitempty"`   // of the container; "" if it runs in none
	Python      *Python           `json:"python,omitempty"`  // environment of set-up and program; nil for that of the node
	Setup       string            `json:"setup,omitempty"`
	Command     string            `json:"command"`
	Env         map[string]string `json:"env,omitempty"`
	Secrets     []string          `json:"secrets,omitempty"` // as in the job file; their values are nowhere in here
	GPUs        []int             `json:"gpus,omitempty"`
	Share       float64           `json:"share,omitempty"`       // of its one GPU, if it is shared
	ShareCap    Bytes             `json:"share_cap,omitempty"`   // memory of the shared GPU that it may have; 0 for as much as the share
	ShareClass  ShareClass        `json:"share_class,omitempty"` // "" for normal
	ShareLimit  float64           `json:"share_limit,omitempty"` // the most of the GPU it gets even if nobody else wants it; 0 for all
	ShareMPS    bool              `json:"share_mps,omitempty"`   // it shares the GPU through NVIDIA MPS
	CPUs        CPUs              `json:"cpus"`
	Memory      Bytes             `json:"memory,omitempty"`
	Checkpoint  string            `json:"checkpoint,omitempty"`
	SaveEvery   Duration          `json:"save_every,omitempty"` // how often the program saves; 0 leaves it to the program
	Snapshot    bool              `json:"snapshot,omitempty"`   // the program is to be saved by snapshots
	Input       bool              `json:"input,omitempty"`      // the program reads what people send it
	Grace       Duration          `json:"grace"`
	LogLimit    int64             `json:"log_limit"`
	Nodes       []string          `json:"nodes"` // addresses in rank order
	MasterPort  int               `json:"master_port"`
	Barrier     bool              `json:"barrier,omitempty"`   // the program starts when all ranks are ready
	Addresses   [][]string        `json:"addresses,omitempty"` // all of each node, in rank order, the preferred ones first
	Slots       []int             `json:"slots,omitempty"`     // GPUs of each rank
	Data        []DataRef         `json:"data,omitempty"`
	Metrics     []MetricRule      `json:"metrics,omitempty"`
	Target      *Target           `json:"target,omitempty"`
	Restore     *Restore          `json:"restore,omitempty"` // nil if the run begins anew
	Outputs     []string          `json:"outputs,omitempty"` // patterns of the files that are kept when the rank has ended
	Shared      string            `json:"shared,omitempty"`  // file system on which its checkpoint directory is; "" for the node's own

	// RegistryAuth names the secret with the credentials for the registry of the image; its value is nowhere in here.
	RegistryAuth string `json:"registry_auth,omitempty"`
}

// Restore names the checkpoint from which a run continues. Its files are in the checkpoint directory before the program
// starts, and none of another checkpoint that is newer.
type Restore struct {
	Checkpoint id.Checkpoint `json:"checkpoint"`
	Name       string        `json:"name" doc:"path below the checkpoint directory; . if it is all of it"`
	Step       int64         `json:"step" doc:"-1 if unknown"`
	Size       Bytes         `json:"size"`
	Parts      []RestorePart `json:"parts" doc:"together they are the checkpoint"`
	Snapshot   bool          `json:"snapshot,omitempty" doc:"it is an image of the process, not files that the program reads"`
}

// RestorePart is what one rank saved of a checkpoint.
type RestorePart struct {
	Manifest string `json:"manifest,omitempty" doc:"digest"`
	Shared   string `json:"shared,omitempty" doc:"name of the shared file system on which its files are; absent if they were uploaded"`
	Path     string `json:"path,omitempty" doc:"on the shared file system, below its root"`
}

// DataRef is a dataset that a run reads, and where its node finds or fetches it.
type DataRef struct {
	Name   string `json:"name"`
	Size   Bytes  `json:"size,omitempty"`   // as registered; 0 if unknown
	Source string `json:"source,omitempty"` // where it is fetched from
	Path   string `json:"path,omitempty"`   // where this node has it already
}

// DataCopy is a dataset that a node has fetched and still has.
type DataCopy struct {
	Name   string `json:"name" maxLength:"63"`
	Source string `json:"source" maxLength:"2000" doc:"from where it was fetched"`
	Path   string `json:"path" maxLength:"4096" doc:"where it lies on the node"`
}
