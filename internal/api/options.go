package api

import (
	"time"

	"trainyard/internal/id"
)

// Option is one way to run a job.
type Option struct {
	What     string     `json:"what" doc:"where it would run, as text"`
	Class    string     `json:"class" enum:"local,reserved,ondemand"`
	Nodes    []id.Node  `json:"nodes,omitempty"`
	Offer    string     `json:"offer,omitempty" doc:"offer that would be provisioned"`
	Count    int        `json:"count" doc:"number of nodes"`
	Start    *time.Time `json:"start,omitempty" doc:"estimated start"`
	Finish   *time.Time `json:"finish,omitempty" doc:"estimated finish"`
	Earliest *time.Time `json:"earliest,omitempty" doc:"lower end of the 80% prediction interval of the finish"`
	Latest   *time.Time `json:"latest,omitempty"`
	Cost     float64    `json:"cost" doc:"estimated cost in dollars"`
	CostMost float64    `json:"cost_most" doc:"estimated cost at the upper end of the prediction interval"`
	Unpriced bool       `json:"unpriced,omitempty" doc:"what the nodes cost is unknown, and cost is 0"`
	Basis    string     `json:"basis" doc:"basis of the estimate"`
	Guess    bool       `json:"guess,omitempty" doc:"the run time is unknown; finish and cost are what it is planned by"`
	Verdict  string     `json:"verdict" doc:"why this option is chosen or not"`
}
