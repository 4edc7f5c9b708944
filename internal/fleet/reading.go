package fleet

import "trainyard/internal/job"

// GPUReading is what was read from a GPU at one moment. It is shown, and decides nothing. What the driver does not say
// is nil.
type GPUReading struct {
	GPU     int       `json:"gpu" doc:"index"`
	Busy    *float64  `json:"busy,omitempty" minimum:"0" maximum:"1" doc:"share of the time in which it worked lately"`
	Memory  job.Bytes `json:"memory,omitempty" doc:"memory in use"`
	Watts   *float64  `json:"watts,omitempty" minimum:"0" doc:"power draw"`
	Celsius *float64  `json:"celsius,omitempty" doc:"temperature"`
}
