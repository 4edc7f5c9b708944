// Package metrics collects the training metrics of a run without a change to its program:
// it reads the program's output, the files that it writes (TensorBoard events, CSV tables,
// JSON lines, Hugging Face's trainer state, W&B and MLflow files), the file of our SDK, and
// what the program has sent to the agent's endpoint (package intake).
//
// Several sources may report the same metric. Only the most trusted one is used, in this order:
//
//	the SDK; the user's rules; what was sent to us; TensorBoard; tables; JSON lines; W&B; MLflow's files;
//	what Hugging Face's Trainer prints; its status messages; JSON on the output; the guesses about other output;
//	trainer_state.json
//
// Status messages rank below files and printed logs because they repeat the last logged value every few seconds with
// the newest step; trainer_state.json ranks last because it is written only with each checkpoint.
//
// The agent polls a Gatherer and sends what is new to the server. A Gatherer keeps no state across restarts of the
// agent: it reads everything again, and the server ignores points that it already has.
package metrics

import (
	"errors"
	"io"
	"path"
	"time"

	"trainyard/internal/agent/metrics/lines"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// Run is what the metrics of a run are read from.
type Run struct {
	Run     id.Run
	UID     id.UID
	Epoch   int
	Started time.Time // of the program; what is older is of another
	// Roots are the folders in which files are looked for: the working directory, and where checkpoints are kept.
	Roots []string
	// SDKFile is written by the SDK; IntakeFile holds what the program sent to the agent.
	SDKFile    string
	IntakeFile string
	// Output opens the output at an offset and says how long it is.
	Output func(offset int64) (io.ReadCloser, int64, error)
	Rules  []job.MetricRule
}

// Limits on the work of one poll.
const (
	maxRead   = 1 << 20          // bytes of one file at once
	fileBytes = 8 * maxRead      // of all files
	scanEvery = 10 * time.Second // between two looks for new files
	maxUnsent = 1000             // points of a metric that wait to be sent
	maxNotes  = 100              // notes that wait to be sent
)

// Gatherer gathers the metrics of one run. It is used by one goroutine.
type Gatherer struct {
	run          Run
	started      float64
	now          float64
	output       *output
	sdkFile      *lineFile
	intakeFile   *lineFile
	files        map[string]*watchedFile
	globs        []string // patterns of files that the user's rules name
	scanned      time.Time
	scanInterval time.Duration // after which files are looked for again
	budget       int
	nextFile     string // the file that is read first

	series   map[string]*series
	order    []string // of the series, as they were first heard
	dropped  int      // metrics beyond those that are kept
	progress progress
	notes    []note
	inFlight batch
}

// New begins to gather. A rule that makes no sense is an error, and the Gatherer works without it.
func New(run Run) (*Gatherer, error) {
	g := &Gatherer{
		run: run, started: seconds(run.Started),
		files: map[string]*watchedFile{}, series: map[string]*series{},
	}

	var rules []string

	var errs []error
	for _, r := range run.Rules {
		switch {
		case r.Match != "":
			if _, err := lines.New([]string{r.Match}); err != nil {
				errs = append(errs, err)
				continue
			}

			rules = append(rules, r.Match)
		case r.File != "":
			g.globs = append(g.globs, path.Clean(r.File))
		}
	}

	parser, err := lines.New(rules)
	errs = append(errs, err)
	g.output = &output{open: run.Output, parser: parser, ruled: len(rules) > 0}
	g.sdkFile = newLineFile(run.SDKFile, true)
	g.intakeFile = newLineFile(run.IntakeFile, false)

	return g, errors.Join(errs...)
}

// Poll reads what is new. With ended the run is over, so that nothing more will come and nothing
// is waited for. It reports whether there is more to read than it did; what could not be read is in the error and the
// rest has been.
func (g *Gatherer) Poll(now time.Time, ended bool) (more bool, err error) {
	g.now, g.budget = seconds(now), fileBytes
	behind, err := g.output.poll(g, ended)
	errs := []error{err}
	for _, t := range []*lineFile{g.sdkFile, g.intakeFile} {
		rest, err := t.poll(g)
		behind = behind || rest
		errs = append(errs, err)
	}

	if ended || g.scanned.IsZero() || now.Sub(g.scanned) >= g.scanInterval {
		g.scanned = now
		errs = append(errs, g.find())
	}

	errs = append(errs, g.pollFiles())

	return behind || g.budget <= 0, errors.Join(errs...)
}

// Dropped is how many metrics were left out because there were too many.
func (g *Gatherer) Dropped() int { return g.dropped }

// Series returns what is known of a metric, nil if nothing is.
func (g *Gatherer) Series(name string) *metric.Series {
	if s := g.series[name]; s != nil {
		return &s.Series
	}

	return nil
}

// seconds is a time in seconds of Unix time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}

	return float64(t.UnixNano()) / 1e9
}
