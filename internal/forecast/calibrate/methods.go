package calibrate

import (
	"math"
	"slices"
)

// The methods, by the names that people see.
const (
	MethodSteps    = "steps"     // the declared amount of work
	MethodMatch    = "match"     // curves of similar jobs
	MethodCurve    = "nohistory" // its own curve
	MethodDuration = "duration"  // regression on what is known before a job runs
	MethodRepeat   = "repeat"    // earlier runs of the same job or program
	MethodReported = "reported"  // what the program itself estimates: status messages, progress bars
	MethodExpect   = "expect"    // what the researcher expects
	MethodBlend    = "blend"     // the weighted mean of all
)

// method is an estimator that takes part in the blend.
type method struct {
	name  string
	prior float64 // the error it is assumed to have before the yard has a record
}

// methods are the estimators of the blend. A prior is the median of |log(actual/estimated)| of the remaining
// work. Matching, curves and durations are as measured on public curves at about half of the way; a
// duration is trusted less than its figure there, which is from benchmarks that everybody runs in the same
// way. Declared steps are nearly exact as long as the program keeps its word. What programs estimate themselves was not
// measured; it is trusted a little more than a duration, because it is about this very run. Earlier runs of the same
// program count only for jobs without points, where they answer alone.
var methods = [...]method{
	{MethodSteps, 0.02},
	{MethodMatch, 0.10},
	{MethodCurve, 0.40},
	{MethodDuration, 0.60},
	{MethodReported, 0.50},
	{MethodRepeat, 0.40},
}

// NumMethods is how many methods take part in the blend.
const NumMethods = len(methods)

// MethodIndex returns the index of a method in PerMethod, and -1 if it does not take part in the blend.
func MethodIndex(name string) int {
	return slices.IndexFunc(methods[:], func(m method) bool { return m.name == name })
}

// MethodName returns the name of the method with an index.
func MethodName(index int) string { return methods[index].name }

// PerMethod is one number for each method; NaN for those that gave no estimate.
type PerMethod [NumMethods]float64

// NoEstimates returns NaN for every method.
func NoEstimates() PerMethod {
	var none PerMethod
	for i := range none {
		none[i] = math.NaN()
	}

	return none
}

// Class is what kind of evidence there is about a job. Residuals within a class are assumed exchangeable; those
// of different classes are not.
type Class string

// The classes.
const (
	ClassSteps  Class = "steps"  // the program declares how much it has to do
	ClassLike   Class = "like"   // similar jobs have finished
	ClassAlone  Class = "alone"  // its own curve is all there is
	ClassBefore Class = "before" // no point has been reported: only its features are known
)

// classes are the classes with the width of the interval before the yard has a record: the ratio of the high end to
// the low end. For jobs with similar predecessors, and those with their curve alone, it is the greater
// of the two widths that covered 80 % on public curves of MLPerf and nanoGPT (2.6 and 7.3). Half of the jobs
// of a large cluster, Philly, ended within a factor of 2 of the last of their size, which for 80 % makes a
// factor of 4 both ways. Declared steps have no such figure; 2 is well above the 1.4 that curves with regular
// steps had.
var classes = [...]struct {
	class Class
	width float64
}{
	{ClassSteps, 2},
	{ClassLike, 2.6},
	{ClassAlone, 7.3},
	{ClassBefore, 16},
}

func classIndex(c Class) int {
	for i := range classes {
		if classes[i].class == c {
			return i
		}
	}

	return len(classes) - 1
}
