// Package duration predicts how long a job takes in all from what is known before it runs and, once it runs, from
// its progress so far. It is one of the estimators of a forecast and the only one that answers before the first
// metric arrives.
//
// It is a regression of the logarithm of the duration: an ensemble of ridge regression, gradient-boosted trees
// and a multilayer perceptron, each trained on four grouped cross-validation folds. The weights of the ensemble
// minimise the out-of-fold error, and the out-of-fold residuals give the prediction interval. It refuses
// to extrapolate to jobs unlike those it has seen (domain.go). docs/adr/0015-own-trees-and-network.md says
// why the learners are our own. Training depends on nothing but the records and the seed.
package duration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/history"
)

// The learners, as Score names them.
const (
	mlp    = "mlp"
	trees  = "trees"
	linear = "linear"
	// Blend is their weighted mean: the prediction of the model.
	Blend = "blend"
)

// format is incremented when stored models can no longer be read.
const format = 1

// Model predicts how long jobs take. It does not change after training but for its Version, and can be stored as JSON.
type Model struct {
	Card
	learners learners
}

// Card describes a model and its validation.
type Card struct {
	Version    int       `json:"version"`    // set by the caller of Train
	Digest     string    `json:"digest"`     // of all that predictions depend on
	Seed       uint64    `json:"seed"`       // of its training
	Records    int       `json:"records"`    // finished jobs that it was trained on
	Groups     int       `json:"groups"`     // held out as a whole for validation; 0 if single jobs were
	Newest     time.Time `json:"newest"`     // when the last of them ended
	Validation []Score   `json:"validation"` // out-of-fold errors of each learner and of the blend, before jobs start
	Running    []Score   `json:"running"`    // the same in mid-run; empty if too few jobs have progress
}

// Score is the out-of-fold error of a learner, relative to the duration.
type Score struct {
	Learner  string  `json:"learner"`
	Median   float64 `json:"median"`
	P80      float64 `json:"p80"`      // 80 % quantile
	Within25 float64 `json:"within25"` // fraction of errors of at most 25 %
	Weight   float64 `json:"weight"`   // in the blend
	Records  int     `json:"records"`  // validation samples
}

// Duration is the predicted duration of a job in all, in seconds, with an 80 % prediction interval.
type Duration struct {
	Low, Mid, High float64
	Similar        int      // finished jobs of its kind in the training data
	Error          float64  // median relative error about jobs of its kind that it had not seen
	Missing        []string // features that finished jobs have and this one lacks; they widen the interval
}

// learners are all that predictions depend on.
type learners struct {
	Format   int         `json:"format"`
	Encoder  *encoder    `json:"encoder"`
	Domain   *domain     `json:"known"`
	Mean     float64     `json:"mean"`
	Scale    float64     `json:"scale"`
	Networks []*network  `json:"networks"`
	Forests  []*forest   `json:"forests"`
	Ridges   []*ridge    `json:"lines"`
	Begin    calibration `json:"begin"` // before a job starts
	Run      calibration `json:"run"`   // in mid-run; without residuals if too few jobs have progress
}

// calibration is the weights of the learners and the residuals of their weighted mean.
type calibration struct {
	Weights   [3]float64 `json:"weights"`   // of networks, forests, ridge regressions
	Residuals []float64  `json:"residuals"` // out-of-fold log(actual/predicted), sorted
}

// Predict returns how long a job takes in all that has run for elapsed seconds. It returns an error for a job outside
// the domain of the training data.
func (m *Model) Predict(f history.Features, elapsed float64) (Duration, error) {
	return m.PredictAt(f, Progress{Elapsed: elapsed})
}

// PredictAt is Predict for a job whose progress may be known.
func (m *Model) PredictAt(f history.Features, p Progress) (Duration, error) {
	if err := m.learners.Domain.check(&f); err != nil {
		return Duration{}, err
	}

	running := p.known() && len(m.learners.Run.Residuals) > 0
	if !running { // how a job goes tells more than what it is
		if err := outside(m.learners.Domain.unproven(&f)); err != nil {
			return Duration{}, err
		}
	}

	kind := m.learners.Domain.Kinds[history.Kind(&f)]
	d := Duration{Similar: kind.Count, Error: math.Expm1(kind.Error)}
	var doubt float64
	d.Missing, doubt = m.learners.Domain.missing(&f)
	if running {
		m.learners.Run.interval(&d, m.learners.predict(&f, p), doubt, p.Elapsed)
	} else {
		m.learners.Begin.interval(&d, m.learners.predict(&f, Progress{}), doubt, p.Elapsed)
	}

	return d, nil
}

// predict returns the log seconds, with the weights for running jobs if the progress is known.
func (p *learners) predict(f *history.Features, at Progress) float64 {
	x := p.Encoder.encode(f, at)
	w := p.Begin.Weights
	if at.known() {
		w = p.Run.Weights
	}

	words := len(p.Encoder.Words)
	var way activations
	sum := 0.0

	for k := range p.Ridges {
		part := 0.0
		if w[0] > 0 {
			part += w[0] * p.Networks[k].predict(&x, words, &way)
		}

		if w[1] > 0 {
			part += w[1] * p.Forests[k].predict(&x, words)
		}

		if w[2] > 0 {
			part += w[2] * p.Ridges[k].predict(&x, words)
		}

		sum += part / float64(len(p.Ridges))
	}

	return p.Mean + p.Scale*sum
}

// maxLogSeconds is the logarithm of the longest prediction: more than two thousand years.
const maxLogSeconds = 25.0

// interval sets the split-conformal interval of a prediction from the residuals, conditional on the job not having
// finished yet. doubt is the variance added by missing features.
func (v *calibration) interval(d *Duration, mid, doubt, elapsed float64) {
	r := v.Residuals
	_, deviation := stat.PopMeanStdDev(r, nil)
	wider := math.Sqrt(1 + doubt/max(deviation*deviation, 1e-6))
	at := func(k int) float64 {
		return math.Exp(min(mid+wider*r[min(max(k, 0), len(r)-1)], maxLogSeconds))
	}

	first := 0 // of the residuals by which the job would not be done yet
	if elapsed > 0 && finite(elapsed) {
		first = len(r)
		for k := range r {
			if at(k) > elapsed {
				first = k
				break
			}
		}
	}

	left := len(r) - first
	if left < max(5, len(r)/50) {
		v.overdue(d, elapsed, wider)
		return
	}

	// Order statistics at (n+1)α from each end, so that one more job falls between with the stated coverage.
	n := float64(left + 1)
	d.Low = at(first + int(math.Floor(0.1*n)) - 1)
	d.High = at(first + int(math.Ceil(0.9*n)) - 1)
	d.Mid = (at(first+(left-1)/2) + at(first+left/2)) / 2
	if first > 0 {
		d.Low = max(d.Low, elapsed)
	}
}

// overdue sets the interval of a job that has run longer than nearly all residuals allow: an exponential tail fitted
// to the largest residuals (the mean excess).
func (v *calibration) overdue(d *Duration, elapsed, wider float64) {
	r := v.Residuals
	tail := r[len(r)-max(len(r)/10, 2):]
	over, _ := stat.PopMeanStdDev(tail, nil)
	over = max((over-tail[0])*wider, 0.05)
	after := func(part float64) float64 {
		return min(elapsed*math.Exp(-over*math.Log(1-part)), math.Exp(maxLogSeconds))
	}
	d.Low, d.Mid, d.High = after(0.1), after(0.5), after(0.9)
}

// storedModel is the JSON form of a model.
type storedModel struct {
	Card  Card     `json:"card"`
	Parts learners `json:"parts"`
}

// MarshalJSON writes the model.
func (m *Model) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedModel{m.Card, m.learners})
}

// UnmarshalJSON reads a model, and refuses one that is damaged or of another format.
func (m *Model) UnmarshalJSON(text []byte) error {
	var s storedModel
	if err := json.Unmarshal(text, &s); err != nil {
		return fault.New(fault.Invalid, "bad_model", "the duration model cannot be read").
			WithRemedy("train it again").
			WithCause(err)
	}

	bad := func(why string) error {
		return fault.New(fault.Invalid, "bad_model", "the duration model %s", why).WithRemedy("train it again")
	}
	if s.Parts.Format != format {
		return bad(fmt.Sprintf("has format %d, want %d", s.Parts.Format, format))
	}

	read := Model{Card: s.Card, learners: s.Parts}
	if !read.learners.valid() || read.digest() != read.Digest {
		return bad("is damaged")
	}

	read.learners.Encoder.prepare()
	*m = read

	return nil
}

// valid reports whether all learners are present and have matching dimensions.
func (p *learners) valid() bool {
	if p.Encoder == nil || p.Domain == nil || len(p.Begin.Residuals) == 0 || len(p.Ridges) == 0 ||
		len(p.Networks) != len(p.Ridges) || len(p.Forests) != len(p.Ridges) || !slices.IsSorted(p.Begin.Residuals) ||
		!slices.IsSorted(p.Run.Residuals) {
		return false
	}

	inputs := p.Encoder.width()
	for k := range p.Ridges {
		n, f, l := p.Networks[k], p.Forests[k], p.Ridges[k]
		if n == nil || f == nil || l == nil || len(l.Weights) != inputs || !f.valid(inputs) || !n.valid(inputs) {
			return false
		}
	}

	return true
}

// digest identifies all that predictions depend on. It is empty if they cannot be marshalled, which finite numbers
// always can.
func (m *Model) digest() string {
	text, err := json.Marshal(m.learners)
	if err != nil {
		return ""
	}

	sum := sha256.Sum256(text)

	return hex.EncodeToString(sum[:8])
}
