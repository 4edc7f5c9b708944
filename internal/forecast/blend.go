package forecast

import (
	"hash/fnv"
	"math"
	"slices"

	"trainyard/internal/quantile"
)

// The methods, by the names that people see.
const (
	MethodSteps    = "steps"     // the declared amount of work
	MethodMatch    = "match"     // curves of jobs like it
	MethodCurve    = "nohistory" // its own curve
	MethodDuration = "duration"  // what jobs like it took, from what is known before they run
	MethodExpect   = "expect"    // what the researcher expects
	MethodBlend    = "blend"     // all of them
)

// methods are those that are weighed against each other, with the error that each is
// thought to have before the yard has a record: the median of the logarithm of what was left
// over what was said. Matching, curves and durations are as they were measured on public curves at
// about half of the way; a duration is trusted less than its figure there, which is from
// benchmarks that everybody runs in the same way. Declared steps are nearly exact as long as the
// program keeps its word.
var methods = [...]struct {
	name  string
	error float64
}{
	{MethodSteps, 0.02},
	{MethodMatch, 0.10},
	{MethodCurve, 0.40},
	{MethodDuration, 0.60},
}

// count is how many methods there are.
const count = len(methods)

// methodAt returns the number of a method, and -1 if it is not weighed.
func methodAt(name string) int {
	return slices.IndexFunc(methods[:], func(m struct {
		name  string
		error float64
	}) bool {
		return m.name == name
	})
}

// logs are one number for each method; NaN for those that did not answer.
type logs [count]float64

func noLogs() logs {
	var l logs
	for i := range l {
		l[i] = math.NaN()
	}
	return l
}

// Class is how a job stands to what is known: forecasts of one class are wrong in
// the same way, those of different classes are not.
type Class string

// The classes.
const (
	ClassSteps  Class = "steps"  // the program says how much it has to do
	ClassLike   Class = "like"   // jobs like it have ended
	ClassAlone  Class = "alone"  // its curve is all there is
	ClassBefore Class = "before" // no point was heard: it is known by what it is alone
)

// classes are the classes with the width of the interval before the yard has a record:
// how many times the low end the high end is. For jobs with their like, and those with
// their curve alone, it is the greater of the two widths that held in four of five cases on public
// curves of MLPerf and nanoGPT (2.6 and 7.3). Half of the jobs of a large cluster, Philly, ended within a
// factor of 2 of the last of their size, which for four of five makes a factor of 4 both ways. Declared
// steps have no such figure; 2 is well above the 1.4 that curves with regular steps had.
var classes = [...]struct {
	class Class
	width float64
}{
	{ClassSteps, 2},
	{ClassLike, 2.6},
	{ClassAlone, 7.3},
	{ClassBefore, 16},
}

func classAt(c Class) int {
	for i := range classes {
		if classes[i].class == c {
			return i
		}
	}
	return len(classes) - 1
}

const (
	quarters = 4
	// shrink is how many jobs a belief is worth: with fewer, what is seen in a narrow set of cases
	// counts less than what was seen in the wider one.
	shrink = 8
	// blindLog is what a method that saw no end is charged with: as if it had said thirty times what was left.
	blindLog = 3.4
	// leastError is the least that a method is thought to be wrong by.
	leastError = 1e-3
	// folds are the parts into which groups of jobs are dealt, so that the blend is judged by jobs that
	// had no part in its weights.
	folds = 5
)

// quarterOf returns the quarter of the progress that is predicted when a part of the
// work is done and the rest was estimated with an error.
func quarterOf(part, err float64) int {
	return quarter(part / (part + (1-part)*math.Exp(-err)))
}

// quarter returns the quarter that a part of the whole is in, 0 to 3.
func quarter(part float64) int {
	return min(max(int(part*quarters), 0), quarters-1)
}

// beliefs are the errors that methods are thought to have, by class and quarter.
type beliefs [len(classes)][quarters]logs

// weights returns what the word of each method counts among those that answered.
func (b *beliefs) weights(class, quarter int, said *logs) logs {
	var w logs
	all := 0.0
	for m := range w {
		if !math.IsNaN(said[m]) {
			e := b[class][quarter][m]
			w[m] = 1 / (e * e)
			all += w[m]
		}
	}
	for m := range w {
		if all > 0 {
			w[m] /= all
		}
	}
	return w
}

// mix returns the weighted mean of what was said.
func mix(w, said *logs) float64 {
	mean := 0.0
	for m := range w {
		if w[m] > 0 {
			mean += w[m] * said[m]
		}
	}
	return mean
}

// firstBeliefs are the beliefs before there is a record.
func firstBeliefs() *beliefs {
	var b beliefs
	for c := range b {
		for q := range b[c] {
			for m := range methods {
				b[c][q][m] = methods[m].error
			}
		}
	}
	return &b
}

// learn returns what methods are thought to be worth after the marks of a record: what
// was seen in a class, drawn to the first belief, and in a quarter of it, drawn to that.
func learn(marks []replay) *beliefs {
	b := firstBeliefs()
	for m := range methods {
		var seen [len(classes)][quarters][]float64
		for i := range marks {
			k := &marks[i]
			e := math.Abs(k.logs[m])
			if k.blind[m] {
				e = blindLog
			}
			if !math.IsNaN(e) {
				seen[k.class][k.quarter] = append(seen[k.class][k.quarter], e)
			}
		}
		for c := range seen {
			class := towards(methods[m].error, slices.Concat(seen[c][:]...))
			for q := range seen[c] {
				b[c][q][m] = towards(class, seen[c][q])
			}
		}
	}
	return b
}

// towards returns the median of errors, drawn to what was believed before by how few
// there are. A job is in about one mark of a quarter and in four in all; its marks
// tell much the same.
func towards(believed float64, errors []float64) float64 {
	if len(errors) == 0 {
		return believed
	}
	n := float64(len(errors)) / float64(len(Parts))
	return math.Exp((n*math.Log(max(quantile.Median(errors), leastError)) + shrink*math.Log(believed)) / (n + shrink))
}

// foldOf deals groups of jobs into folds.
func foldOf(s *Scored) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(groupOf(s)))
	return int(h.Sum32() % folds)
}

func groupOf(s *Scored) string {
	if s.Group != "" {
		return s.Group
	}
	return string(s.Job)
}
