package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Forecast is what is expected of a job that has not ended. Lists leave out methods,
// path and elsewhere.
type Forecast struct {
	job.Forecast
	End     time.Time `json:"end" doc:"estimated finish"`
	EndLow  time.Time `json:"end_low" doc:"lower end of the 80% prediction interval"`
	EndHigh time.Time `json:"end_high" doc:"upper end of the 80% prediction interval"`
}

// NewForecast shows a forecast, nil if there is none.
func NewForecast(f *job.Forecast) *Forecast {
	if f == nil {
		return nil
	}

	early, late := f.Ends()

	return &Forecast{Forecast: *f, End: f.End().UTC(), EndLow: early.UTC(), EndHigh: late.UTC()}
}

// Brief returns the forecast as lists show it.
func (f *Forecast) Brief() *Forecast {
	if f == nil || f.Basis == job.BasisNone && !f.Starting {
		return nil
	}

	b := *f
	b.Methods, b.Path, b.Elsewhere = nil, nil, nil

	return &b
}

// Metric is what is known of one metric of a job.
type Metric struct {
	Name      string   `json:"name"`
	Source    string   `json:"source" doc:"source of the metric: stdout (tqdm), TensorBoard, SDK"`
	Step      float64  `json:"step" doc:"step of the newest value"`
	Value     float64  `json:"value" doc:"newest value"`
	At        float64  `json:"at" doc:"time of the newest value, in seconds of Unix time"`
	Count     int      `json:"count" doc:"number of values reported"`
	NonFinite int      `json:"non_finite,omitempty" doc:"NaN or infinite values since the newest finite one"`
	Goal      *float64 `json:"goal,omitempty" doc:"target value, if the job's target is on this metric"`
}

// MetricList lists the metrics of a job.
type MetricList struct {
	Metrics []Metric `json:"metrics"`
}

// Curve is one metric of a job, thinned out so that it keeps its shape.
type Curve struct {
	Metric
	Points []MetricPoint `json:"points"`
	Fit    *Fit          `json:"fit,omitempty" doc:"fitted curve; absent if no forecast is based on this metric"`
}

// CurveList has the main metric of several jobs. Jobs that were not found or have reported nothing are left out.
type CurveList struct {
	Curves []JobCurve `json:"curves"`
}

// JobCurve is the metric that says most about how far a job is: that of its target, that on which its forecast is
// based, a loss, or else the first.
type JobCurve struct {
	Job    id.Job    `json:"job"`
	Metric string    `json:"metric"`
	Goal   *float64  `json:"goal,omitempty" doc:"target value, if the job's target is on this metric"`
	Values []float64 `json:"values" doc:"values in the order of steps, downsampled; NaN and infinity are left out"`
}

// Fit is a curve through the points and beyond, with its interval.
type Fit struct {
	Step []float64 `json:"step"`
	Mid  []float64 `json:"mid"`
	Low  []float64 `json:"low"`
	High []float64 `json:"high"`
}

// ForecastRecord is how good forecasts have been.
type ForecastRecord struct {
	Jobs      int              `json:"jobs" doc:"jobs in the history: those that succeeded"`
	Scored    int              `json:"scored" doc:"jobs of the history on which forecasts were scored"`
	Wanted    int              `json:"wanted" doc:"number of scored jobs below which intervals are uncalibrated"`
	Covered   float64          `json:"covered" doc:"coverage: share of jobs that finished within the 80% prediction interval"`
	CoveredOf int              `json:"covered_of" doc:"number of forecasts behind the coverage"`
	Methods   []MethodAccuracy `json:"methods"`
	Model     *DurationModel   `json:"model,omitempty" doc:"duration model; absent if too few jobs have finished"`
	NoModel   string           `json:"no_model,omitempty" doc:"why there is no duration model"`

	Bases       []BasisAccuracy `json:"bases,omitempty" doc:"accuracy by what forecasts were based on"`
	Trend       []TrendAccuracy `json:"trend,omitempty" doc:"accuracy over time, by the day or week in which jobs finished; the newest 60"`
	Reliability []Reliability   `json:"reliability,omitempty" doc:"calibration: how often outcomes were at most what was said with a probability, each job judged by those that had finished before it"`
	Worst       []WorstForecast `json:"worst,omitempty" doc:"largest errors among the newest 200 jobs, one of each job, at most 10; only jobs that the caller may read"`
}

// Quality is how good forecasts of some jobs were, all methods together.
type Quality struct {
	Median    float64 `json:"median" doc:"median relative error of the remaining time"`
	P80       float64 `json:"p80"`
	Count     int     `json:"count" doc:"number of forecasts"`
	Covered   float64 `json:"covered" doc:"share of the 80% prediction intervals that contained the outcome"`
	CoveredOf int     `json:"covered_of" doc:"number of intervals; guesses do not count"`
}

// BasisAccuracy is how good forecasts were that had the same basis.
type BasisAccuracy struct {
	Basis string `json:"basis" enum:"steps,like,alone,before" doc:"steps: the job declared its amount of work; like: similar jobs had finished; alone: only its own curve; before: no point had been reported"`
	Quality
}

// TrendAccuracy is how good forecasts were of jobs that finished in a day or week.
type TrendAccuracy struct {
	Start time.Time `json:"start" doc:"beginning of the day or week, in UTC"`
	Quality
}

// Reliability compares what was said with what came true.
type Reliability struct {
	Expected float64 `json:"expected" doc:"probability with which outcomes were said to be at most a value"`
	Observed float64 `json:"observed" doc:"share of the outcomes that were"`
	Count    int     `json:"count" doc:"number of forecasts"`
}

// WorstForecast is a forecast that was far off.
type WorstForecast struct {
	Job      id.Job    `json:"job"`
	Name     string    `json:"name,omitempty"`
	Owner    id.User   `json:"owner"`
	Finished time.Time `json:"finished"`
	Progress float64   `json:"progress" doc:"part of its work that was done when the forecast would have been made, 0 to 1"`
	Basis    string    `json:"basis"`
	Ratio    float64   `json:"ratio" doc:"time that was left, divided by the estimate of it: 2 means that it took twice as long as expected"`
	Covered  *bool     `json:"covered,omitempty" doc:"whether it finished within its prediction interval; absent if that was a guess"`
}

// MethodAccuracy is how well one method has foretold, by how far jobs were.
type MethodAccuracy struct {
	Method string     `json:"method"`
	Errors []Accuracy `json:"errors"`
}

// Accuracy is the error of a method on jobs that were in one quarter of their way.
type Accuracy struct {
	Quarter int     `json:"quarter" doc:"quarter of estimated job progress, 1 to 4; 0 for all"`
	Median  float64 `json:"median" doc:"median relative error of the remaining time"`
	P80     float64 `json:"p80"`
	Failed  int     `json:"failed" doc:"forecasts without an estimated finish"`
	Count   int     `json:"count" doc:"total number of forecasts"`
}

// DurationModel is what was learned of how long jobs take.
type DurationModel struct {
	Version    int             `json:"version"`
	Trained    time.Time       `json:"trained" doc:"training cutoff: jobs that ended before this time were used"`
	Records    int             `json:"records"`
	Digest     string          `json:"digest"`
	Validation []LearnerErrors `json:"validation" doc:"errors on held-out jobs"`
}

// LearnerErrors is how well one way of learning did.
type LearnerErrors struct {
	Learner  string  `json:"learner"`
	Median   float64 `json:"median" doc:"median relative error"`
	P80      float64 `json:"p80"`
	Within25 float64 `json:"within25" doc:"share of jobs whose error is at most 25%"`
	Weight   float64 `json:"weight" doc:"weight of the learner in the ensemble"`
}

// Forecast returns what is expected of a job.
func (c *Client) Forecast(ctx context.Context, j id.Job) (Forecast, error) {
	var f Forecast
	err := c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(string(j))+"/forecast", nil, nil, &f)
	return f, err
}

// Metrics lists what a job's program measures of itself.
func (c *Client) Metrics(ctx context.Context, j id.Job) (MetricList, error) {
	var l MetricList
	err := c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(string(j))+"/metrics", nil, nil, &l)
	return l, err
}

// Curve returns one metric of a job, downsampled to at most the given number of points.
func (c *Client) Curve(ctx context.Context, j id.Job, name string, points int) (Curve, error) {
	var out Curve
	err := c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(string(j))+"/curve",
		url.Values{"metric": {name}, "points": {strconv.Itoa(points)}}, nil, &out)

	return out, err
}

// Curves returns the main metric of several jobs, each downsampled to at most the given number of points.
func (c *Client) Curves(ctx context.Context, jobs []id.Job, points int) (CurveList, error) {
	q := url.Values{"points": {strconv.Itoa(points)}}
	for _, j := range jobs {
		q.Add("job", string(j))
	}

	return get[CurveList](ctx, c, at("curves"), q)
}

// ForecastRecord returns how good forecasts have been.
func (c *Client) ForecastRecord(ctx context.Context) (ForecastRecord, error) {
	var r ForecastRecord
	err := c.call(ctx, http.MethodGet, "/api/v1/forecasts", nil, nil, &r)
	return r, err
}

// ImportReply says what became of a table of earlier jobs.
type ImportReply struct {
	Read int `json:"read" doc:"succeeded jobs found in the file"`
	Kept int `json:"kept" doc:"jobs imported: the newest, up to the size of the history"`
}

// ImportHistory uploads a table of past jobs.
func (c *Client) ImportHistory(ctx context.Context, format string, table []byte) (ImportReply, error) {
	var reply ImportReply

	resp, err := c.send(
		ctx,
		c.stream,
		http.MethodPost,
		"/api/v1/forecasts/history",
		url.Values{"format": {format}},
		bytes.NewReader(table),
		"Content-Type",
		"application/octet-stream",
	)
	if err != nil {
		return reply, err
	}

	defer func() { _ = resp.Body.Close() }()

	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return reply, fmt.Errorf("read response to the import of history: %w", err)
	}

	return reply, nil
}
