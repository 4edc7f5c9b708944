package api

import (
	"context"
	"math"
	"net/http"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/metric"
)

// The limits on what an agent may send of metrics at once.
const (
	MaxMetricRuns   = 1000
	MaxMetricPoints = 20_000 // of all runs together
	MaxMetricNotes  = 100    // of a run
)

// MetricsReport is what programs have measured of themselves since the last report, or,
// to a server that has started anew, all that is still known. Telling it again changes nothing.
type MetricsReport struct {
	Runs []RunMetrics `json:"runs" maxItems:"1000"`
}

// RunMetrics is what one run has measured.
type RunMetrics struct {
	Run    id.Run         `json:"run" maxLength:"100"`
	UID    id.UID         `json:"uid,omitempty" maxLength:"64"`
	Series []SeriesPoints `json:"series,omitempty" maxItems:"64"`
	Done   *float64       `json:"done,omitempty" doc:"work completed as reported by the program, in its own units"`
	Total  *float64       `json:"total,omitempty" doc:"total work, in the same units"`
	// Remaining is as of when the report is sent.
	Remaining *float64     `json:"remaining_seconds,omitempty" doc:"remaining time as the program itself estimates it"`
	Notes     []MetricNote `json:"notes,omitempty" maxItems:"100"`
}

// SeriesPoints are further points of a metric.
type SeriesPoints struct {
	Name   string        `json:"name" maxLength:"128"`
	Source string        `json:"source" maxLength:"200" doc:"source of the metric"`
	Points []MetricPoint `json:"points" maxItems:"20000"`
	// NonFinite comes with the newest value that is no number: those before it are not sent.
	NonFinite int `json:"non_finite,omitempty" minimum:"0" doc:"NaN or infinite values since the newest finite one"`
}

// MetricPoint is one value of a metric.
type MetricPoint struct {
	Step  float64  `json:"s" doc:"step reported by the program"`
	At    float64  `json:"t" doc:"time in seconds of Unix time"`
	Value *float64 `json:"v" doc:"value; null for NaN or infinity"`
}

// MetricNote is something that a program says about itself.
type MetricNote struct {
	Kind string  `json:"kind" enum:"checkpoint_saved,checkpoint_restored,target_reached" doc:"kind of event"`
	Step float64 `json:"step,omitempty"`
	At   float64 `json:"at" doc:"time in seconds of Unix time"`
	Text string  `json:"text,omitempty" maxLength:"500"`
}

// MetricsReply answers a report of metrics.
type MetricsReply struct {
	Server string `json:"server" doc:"identifies this start of the server; when it changes, the agent must send all metrics again"`
}

// WirePoint turns a point into what is sent.
func WirePoint(p metric.Point) MetricPoint {
	out := MetricPoint{Step: p.Step, At: p.At}
	if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
		out.Value = &p.Value
	}

	return out
}

// Point turns what was sent into a point.
func (p MetricPoint) Point() metric.Point {
	out := metric.Point{Step: p.Step, At: p.At, Value: math.NaN()}
	if p.Value != nil {
		out.Value = *p.Value
	}

	return out
}

// Check says what is wrong with a report beyond what its type says.
func (r *MetricsReport) Check() error {
	points := 0
	for i := range r.Runs {
		for j := range r.Runs[i].Series {
			s := &r.Runs[i].Series[j]
			points += len(s.Points)

			if s.Name == "" {
				return fault.New(fault.Invalid, "bad_metric", "a metric of %s has no name", r.Runs[i].Run).WithField("runs")
			}
		}
	}

	if points > MaxMetricPoints {
		return fault.New(fault.Invalid, "too_large", "at most %d points are allowed, got %d", MaxMetricPoints, points).
			WithField("runs").
			WithRemedy("send them in several reports")
	}

	return nil
}

// PushMetrics tells the server what programs have measured.
func (c *Client) PushMetrics(ctx context.Context, r MetricsReport) (MetricsReply, error) {
	var reply MetricsReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/metrics", nil, r, &reply)
	return reply, err
}
