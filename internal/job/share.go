package job

// ShareClass says which jobs that share a GPU are served first.
type ShareClass string

// The classes, from the most to the least urgent. An empty one is normal.
const (
	// ShareGuaranteed is served before the others until it has had its share.
	ShareGuaranteed ShareClass = "guaranteed"
	// ShareNormal gets its share, and a part of what others leave.
	ShareNormal ShareClass = "normal"
	// ShareOpportunistic gets what the others leave.
	ShareOpportunistic ShareClass = "opportunistic"
)

// ShareModeMPS is the mode of a GPU that jobs share through NVIDIA MPS. Nobody measures which of them has it when.
const ShareModeMPS = "mps"

// ShareUse is what a rank has had of a GPU that it shares, by the clock of the agent that divides it.
type ShareUse struct {
	Mode     string  `json:"mode" enum:"whole,open,token,mig,mps" doc:"how the GPU is divided at the moment"`
	Held     float64 `json:"held" minimum:"0" doc:"seconds in which it had the GPU so far"`
	Demanded float64 `json:"demanded" minimum:"0" doc:"seconds in which it had the GPU or waited for it so far"`
	Entitled float64 `json:"entitled" minimum:"0" doc:"seconds that its share of these is"`
	Memory   int64   `json:"memory,omitempty" minimum:"0" doc:"bytes of GPU memory that it has"`
	Cap      int64   `json:"cap,omitempty" minimum:"0" doc:"bytes of GPU memory that it may have"`
	Denials  int     `json:"denials,omitempty" minimum:"0" doc:"allocations refused because of the cap so far"`
	// Bypassed counts the processes of the rank on the GPU that are not held back, because they removed the library.
	Bypassed int `json:"bypassed,omitempty" minimum:"0" doc:"processes of the rank that use the GPU without the library"`
}

// Short reports how much of what it was entitled to the rank did not get, since an earlier reading: 0 for nothing. An
// agent that was started again counts from the beginning.
func (u *ShareUse) Short(before *ShareUse) float64 {
	if u.Demanded < before.Demanded {
		before = &ShareUse{}
	}

	return max(0, (u.Entitled-before.Entitled)-(u.Held-before.Held))
}
