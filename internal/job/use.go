package job

import "time"

// Resource is something of a node that a run uses.
type Resource string

// The resources whose use is measured.
const (
	ResourceCPU     Resource = "cpu"
	ResourceMemory  Resource = "memory"
	ResourceGPU     Resource = "gpu"
	ResourceDisk    Resource = "disk"
	ResourceNetwork Resource = "network"
)

// Use is what one rank of a run uses of its node now and has used so far, as its agent measured it.
type Use struct {
	At         time.Time `json:"at"`
	CPUSeconds float64   `json:"cpu_seconds,omitempty" minimum:"0" doc:"CPU time so far"`
	Memory     int64     `json:"memory,omitempty" minimum:"0" doc:"bytes in use, without file cache that can be dropped"`
	MemoryPeak int64     `json:"memory_peak,omitempty" minimum:"0" doc:"most bytes seen in use so far"`
	GPUs       []GPUUse  `json:"gpus,omitempty" maxItems:"256"`
	Read       int64     `json:"read,omitempty" minimum:"0" doc:"bytes read from disks so far"`
	Written    int64     `json:"written,omitempty" minimum:"0" doc:"bytes written to disks so far"`
	Received   int64     `json:"received,omitempty" minimum:"0" doc:"bytes received from the network so far"`
	Sent       int64     `json:"sent,omitempty" minimum:"0" doc:"bytes sent to the network so far"`
	Share      *ShareUse `json:"share,omitempty" doc:"what it has had of the GPU that it shares"`
	// Unmeasured is what the agent cannot measure; its values are 0 and mean nothing.
	Unmeasured []Unmeasured `json:"unmeasured,omitempty" maxItems:"10"`
}

// GPUUse is what is used of one GPU. A GPU that several runs share is measured as a whole.
type GPUUse struct {
	Index  int     `json:"index"`
	Busy   float64 `json:"busy" minimum:"0" maximum:"1" doc:"share of the time in which it worked"`
	Memory int64   `json:"memory,omitempty" minimum:"0" doc:"bytes in use"`
}

// Unmeasured is a resource whose use is not known.
type Unmeasured struct {
	Resource Resource `json:"resource"`
	Why      string   `json:"why" maxLength:"200"`
}

// Measures reports whether the use of a resource is known.
func (u *Use) Measures(r Resource) bool {
	for i := range u.Unmeasured {
		if u.Unmeasured[i].Resource == r {
			return false
		}
	}

	return true
}
