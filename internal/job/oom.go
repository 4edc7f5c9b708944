package job

import (
	"fmt"
	"strconv"
)

// OnOOM is what a job lets the yard do after it ran out of memory, beside giving it more memory.
type OnOOM struct {
	Attempts int    `json:"attempts,omitempty"` // how often; 0 for as often as the failure catalogue says
	MaxGPUs  int    `json:"max_gpus,omitempty"` // of each node: its program divides what is in memory among its GPUs
	Halve    string `json:"halve,omitempty"`    // variable with the size of the batch
}

// Attempts returns how often a run follows one that ran out of memory, without a person.
func (s *Spec) Attempts(h *Handling) int {
	if s.OnOOM != nil && s.OnOOM.Attempts > 0 {
		return s.OnOOM.Attempts
	}

	return h.Limit
}

// Relief is something that lets a job go on after it ran out of memory.
type Relief struct {
	Floor Floor      // least memory of the next run
	Amend *Amendment // nil if nothing else changes
	Gets  string     // what the next run gets, in words
	Seek  bool       // whether there is a node that has it must be seen; it surely fits where it ran otherwise
}

// Reliefs lists what would help a job that ran out of memory, in the order in which it is tried: more memory, more GPUs
// if its program can use them, a smaller batch if it allows that. floor is what it is to have next, and words names
// that; had is how many GPUs it had on each node.
func (j *Job) Reliefs(cause Cause, floor Floor, words string, had int) []Relief {
	var list []Relief
	if floor != j.Floor {
		list = append(list, Relief{Floor: floor, Gets: words, Seek: true})
	}

	on := j.Spec.OnOOM
	if on == nil {
		return list
	}

	if n := min(2*had, on.MaxGPUs); cause == CauseGPUOOM && n > had {
		list = append(list, Relief{
			Floor: j.Floor, Amend: &Amendment{GPUs: Range{Min: n, Max: max(n, j.Spec.Resources.GPUs.Max)}},
			Gets: fmt.Sprintf("%d GPUs", n), Seek: true,
		})
	}

	if n, err := strconv.Atoi(j.Spec.Env[on.Halve]); err == nil && n > 1 {
		half := strconv.Itoa(n / 2)
		list = append(list, Relief{
			Floor: j.Floor, Amend: &Amendment{Env: map[string]string{on.Halve: half}}, Gets: on.Halve + "=" + half,
		})
	}

	return list
}
