package job

import "trainyard/internal/id"

// Launch is all that an engine needs to know to start one rank of a run.
type Launch struct {
	Name       string            `json:"name,omitempty"`
	Owner      id.User           `json:"owner"`
	Workdir    string            `json:"workdir,omitempty"` // manifest digest
	Setup      string            `json:"setup,omitempty"`
	Command    string            `json:"command"`
	Env        map[string]string `json:"env,omitempty"`
	GPUs       []int             `json:"gpus,omitempty"`
	Share      float64           `json:"share,omitempty"` // of its one GPU, if others have the rest
	CPUs       CPUs              `json:"cpus"`
	Memory     Bytes             `json:"memory,omitempty"`
	Checkpoint string            `json:"checkpoint,omitempty"`
	Grace      Duration          `json:"grace"`
	LogLimit   int64             `json:"log_limit"`
	Nodes      []string          `json:"nodes"` // addresses in rank order
	MasterPort int               `json:"master_port"`
}
