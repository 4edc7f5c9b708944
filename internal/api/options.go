package api

import (
	"time"

	"trainyard/internal/id"
)

// Option is one way to run a job.
type Option struct {
	What     string     `json:"what" doc:"what it would run on, in words"`
	Class    string     `json:"class" enum:"local,reserved,ondemand"`
	Nodes    []id.Node  `json:"nodes,omitempty"`
	Offer    string     `json:"offer,omitempty" doc:"that would be provisioned"`
	Count    int        `json:"count" doc:"of nodes"`
	Start    *time.Time `json:"start,omitempty" doc:"when it would begin to work"`
	Finish   *time.Time `json:"finish,omitempty" doc:"expected"`
	Earliest *time.Time `json:"earliest,omitempty" doc:"it is done between earliest and latest four times out of five"`
	Latest   *time.Time `json:"latest,omitempty"`
	Cost     float64    `json:"cost" doc:"expected, in dollars"`
	CostMost float64    `json:"cost_most" doc:"at the late end of the interval"`
	Basis    string     `json:"basis" doc:"what the times rest on"`
	Verdict  string     `json:"verdict" doc:"why it is taken, or why it is not"`
}
