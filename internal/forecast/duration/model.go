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
	// Blend is what they say together: the model's answer.
	Blend = "blend"
)

// format is changed when a model that was stored can no longer be read.
const format = 1

// Model says how long a job will take, by what is known of it before it runs. It is never
// changed after training but for its Version, and may be kept as JSON.
type Model struct {
	Card
	learners learners
}

// Card is what is shown of a model.
type Card struct {
	Version    int       `json:"version"`    // counted by who trains
	Digest     string    `json:"digest"`     // of all that its answers depend on
	Seed       uint64    `json:"seed"`       // of its training
	Records    int       `json:"records"`    // finished jobs that it has learned from
	Groups     int       `json:"groups"`     // that were held out as a whole to judge it; 0 if single jobs were
	Newest     time.Time `json:"newest"`     // when the last of them ended
	Validation []Score   `json:"validation"` // how wrong each learner, and their blend, was about jobs that it had not seen
	Running    []Score   `json:"running"`    // and about such jobs some way on; empty if too few past jobs tell that
}

// Score is how wrong a learner was about jobs that it had not seen, relative to how long they took.
type Score struct {
	Learner  string  `json:"learner"`
	Median   float64 `json:"median"`
	P80      float64 `json:"p80"`      // four of five were less wrong
	Within25 float64 `json:"within25"` // part of them that was at most 25 % off
	Weight   float64 `json:"weight"`   // of its word in the blend
	Records  int     `json:"records"`  // jobs it was asked about: those like others
}

// Duration is how long a job takes in all, in seconds, with an interval that held for four of five
// jobs of other groups.
type Duration struct {
	Low, Mid, High float64
	Similar        int      // finished jobs of its kind that were learned from
	Missing        []string // what finished jobs told and this one does not; the interval is wider for it
}

// learners are what the answers depend on.
type learners struct {
	Format   int         `json:"format"`
	Encoder  *encoder    `json:"encoder"`
	Domain   *domain     `json:"known"`
	Mean     float64     `json:"mean"`
	Scale    float64     `json:"scale"`
	Networks []*network  `json:"networks"`
	Forests  []*forest   `json:"forests"`
	Ridges   []*ridge    `json:"lines"`
	Begin    calibration `json:"begin"` // on jobs that begin
	Run      calibration `json:"run"`   // on jobs that run; without residuals if too few past jobs tell their progress
}

// calibration is what the learners' words are worth.
type calibration struct {
	Weights   [3]float64 `json:"weights"`   // of networks, forests, lines
	Residuals []float64  `json:"residuals"` // logarithm of the truth over the answer, in order
}

// Predict says how long a job takes in all of which elapsed seconds have been run. It refuses to
// answer about a job that is unlike those that it has learned from.
func (m *Model) Predict(f history.Features, elapsed float64) (Duration, error) {
	return m.PredictAt(f, Progress{Elapsed: elapsed})
}

// PredictAt does so for a job of which it is also known how far it has come.
func (m *Model) PredictAt(f history.Features, p Progress) (Duration, error) {
	if err := m.learners.Domain.check(&f); err != nil {
		return Duration{}, err
	}
	d := Duration{Similar: m.learners.Domain.countKind(&f)}
	var doubt float64
	d.Missing, doubt = m.learners.Domain.missing(&f)
	if p.known() && len(m.learners.Run.Residuals) > 0 {
		m.learners.Run.interval(&d, m.learners.predict(&f, p), doubt, p.Elapsed)
	} else {
		m.learners.Begin.interval(&d, m.learners.predict(&f, Progress{}), doubt, p.Elapsed)
	}
	return d, nil
}

// predict returns the logarithm of the seconds. Of a job whose progress is told the verdict on running jobs counts.
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

// maxLogSeconds is the logarithm of the longest duration that is said: three thousand years.
const maxLogSeconds = 25.0

// interval puts the interval around an answer: by how much answers were wrong, given that the job is not done
// yet. doubt is the variance that comes from what is not known of the job.
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
	// The (n+1)th parts of the list, so that one more job would fall between with the chance that is said.
	n := float64(left + 1)
	d.Low = at(first + int(math.Floor(0.1*n)) - 1)
	d.High = at(first + int(math.Ceil(0.9*n)) - 1)
	d.Mid = (at(first+(left-1)/2) + at(first+left/2)) / 2
	if first > 0 {
		d.Low = max(d.Low, elapsed)
	}
}

// overdue is for a job that runs longer than nearly all were wrong by: the more it is over, the longer
// it may still take, as the worst of the past residuals had it.
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

// storedModel is how a model is written.
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
		return fault.New(fault.Invalid, "bad_model", "the duration model cannot be read").WithRemedy("train it again").WithCause(err)
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

// valid reports whether all parts are there and fit together.
func (p *learners) valid() bool {
	if p.Encoder == nil || p.Domain == nil || len(p.Begin.Residuals) == 0 || len(p.Ridges) == 0 ||
		len(p.Networks) != len(p.Ridges) || len(p.Forests) != len(p.Ridges) || !slices.IsSorted(p.Begin.Residuals) || !slices.IsSorted(p.Run.Residuals) {
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

// digest is a name for all that the answers depend on. Parts that cannot be written, which
// finite numbers never are, have none.
func (m *Model) digest() string {
	text, err := json.Marshal(m.learners)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
