package repeat_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/repeat"
	"trainyard/internal/id"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// yard makes past jobs that ended one after the other.
type yard struct {
	past []history.Past
	at   time.Time
}

func (y *yard) ran(seconds float64, f history.Features) {
	if y.at.IsZero() {
		y.at = noon
	}

	y.at = y.at.Add(time.Duration(seconds*1e9) + time.Minute)
	y.past = append(y.past, history.Past{
		Job: id.NewJob(uint64(len(y.past) + 1)), Features: f, Seconds: seconds, Finished: y.at,
	})
}

func command(owner, name, run string) history.Features {
	return history.Features{Owner: owner, Name: name, Command: run, Identity: "id of " + run, GPUs: 1}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()

	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

// TestTheRepetitionOfAJobTakesAsLongAsBefore: newcomer 2. After 55 jobs that took a moment, a job file that had
// taken 51 and 54 seconds was forecast to take one.
func TestTheRepetitionOfAJobTakesAsLongAsBefore(t *testing.T) {
	t.Parallel()

	var y yard

	training := command("ann", "train", "python train.py")
	y.ran(51, training)

	for range 55 {
		y.ran(0.05, command("ann", "", "true"))
	}

	y.ran(54, training)

	p, ok := repeat.New(y.past).Predict(&repeat.Query{Features: training})
	if !ok || p.Level != repeat.SameJob || p.Runs != 2 {
		t.Fatalf("it is known: %v, %+v", ok, p)
	}

	near(t, "the median", p.Seconds.Mid, 53, 0.05)

	if !p.Guess || p.Seconds.Low < 20 || p.Seconds.High > 120 || p.Seconds.Low >= p.Seconds.Mid {
		t.Errorf("two runs, of which others say nothing: %+v", p)
	}

	// The one job that took a moment is the exact repetition of 55.
	p, ok = repeat.New(y.past).Predict(&repeat.Query{Features: command("ann", "", "true")})
	if !ok || p.Seconds.High > 5 || p.Guess {
		t.Errorf("of true: %v, %+v", ok, p)
	}
}

// TestAnUnlikeJobIsNotPredicted: newcomer 2. 22 small jobs said of `sleep 600` on 4 GPUs that 8 seconds remained.
func TestAnUnlikeJobIsNotPredicted(t *testing.T) {
	t.Parallel()

	var y yard
	for i := range 22 {
		y.ran(float64(1+i), command("ann", "", "echo hello"))
		y.ran(5, command("ann", "nap", "sleep 5"))
	}

	x := repeat.New(y.past)

	four := command("ann", "", "sleep 600")
	four.GPUs = 4

	for what, f := range map[string]history.Features{
		"another program":                four,
		"another name":                   command("ann", "train", "python train.py"),
		"far more of what it is told to": command("ann", "nap", "sleep 600"),
		"another owner's script":         command("ben", "", "echo hello"),
		"nothing":                        {},
	} {
		if p, ok := x.Predict(&repeat.Query{Features: f}); ok {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

func TestDurationsFollowTheArgumentThatTheyFollowed(t *testing.T) {
	t.Parallel()

	for what, tt := range map[string]struct {
		run  func(k float64) string
		took func(k float64) float64
		runs int
		want float64 // for 40
	}{
		"an amount, once":         {func(k float64) string { return fmt.Sprintf("python train.py --epochs %g", k) }, func(k float64) float64 { return 60 * k }, 1, 2400},
		"an amount":               {func(k float64) string { return fmt.Sprintf("python train.py epochs=%g", k) }, func(k float64) float64 { return 60 * k }, 6, 2400},
		"a number without a name": {func(k float64) string { return fmt.Sprintf("sleep %g", k*10) }, func(k float64) float64 { return 10 * k }, 6, 400},
		"a width, by its root":    {func(k float64) string { return fmt.Sprintf("python x.py --width %g", k) }, func(k float64) float64 { return 600 * math.Sqrt(k) }, 6, 3794},
		"a seed, which is none":   {func(k float64) string { return fmt.Sprintf("python train.py --seed %g", k*100) }, func(float64) float64 { return 600 }, 6, 600},
	} {
		var y yard
		for i := range tt.runs {
			k := 10 + 4*float64(i)
			y.ran(tt.took(k), command("ann", "job", tt.run(k)))
		}

		p, ok := repeat.New(y.past).Predict(&repeat.Query{Features: command("ann", "job", tt.run(40))})
		if !ok || p.Level != repeat.SameProgram || !p.Guess {
			t.Errorf("%s: %v, %+v", what, ok, p)
			continue
		}

		near(t, what, p.Seconds.Mid, tt.want, 0.1)
	}
}

func TestTheNarrowestLevelAnswers(t *testing.T) {
	t.Parallel()

	var y yard

	y.ran(1000, history.Features{Name: "resnet-1"}) // imported: what it ran is not known
	y.ran(200, command("ben", "resnet-3", "python train.py --fp16"))
	y.ran(300, command("ann", "resnet", "python train.py --width 3"))

	same := command("ann", "resnet", "python train.py --width 2")
	same.Identity = "other files"
	y.ran(400, same)
	y.ran(500, command("ann", "resnet", "python train.py --width 2"))

	x := repeat.New(y.past)

	for _, tt := range []struct {
		f    history.Features
		want repeat.Level
		runs int
	}{
		{command("ann", "resnet", "python train.py --width 2"), repeat.SameJob, 1},
		{history.Features{Owner: "ann", Name: "resnet", Command: "python  train.py --width 2", GPUs: 1},
			repeat.SameCommand, 2},
		{command("ann", "resnet", "python train.py --width 4"), repeat.SameProgram, 3},
		{command("cyd", "resnet-8", "python train.py --bf16"), repeat.SameScript, 4},
		{command("cyd", "resnet-8", "python other.py"), repeat.SameName, 1},
	} {
		p, ok := x.Predict(&repeat.Query{Features: tt.f})
		if !ok || p.Level != tt.want || p.Runs != tt.runs {
			t.Errorf("%s of %s: %v, %+v, want level %d by %d", tt.f.Command, tt.f.Owner, ok, p, tt.want, tt.runs)
		}
	}
}

func TestAJobThatRunsTakesLongerThanItHasRun(t *testing.T) {
	t.Parallel()

	var y yard

	f := command("ann", "train", "python train.py")
	for i := range 30 {
		y.ran(100+10*float64(i%7), f)
	}

	x := repeat.New(y.past)
	for _, elapsed := range []float64{0, 50, 100, 120, 150} {
		p, ok := x.Predict(&repeat.Query{Features: f, Elapsed: elapsed})
		if !ok || p.Seconds.Low < elapsed || p.Seconds.Mid < p.Seconds.Low || p.Seconds.High < p.Seconds.Mid {
			t.Errorf("after %g s: %v, %+v", elapsed, ok, p)
		}
	}

	if p, ok := x.Predict(&repeat.Query{Features: f, Elapsed: 1000}); ok || p.Runs == 0 {
		t.Errorf("it has run longer than all others: %v, %+v", ok, p)
	}
}

// stream is jobs of programs that take about as long each time, with many that take a moment among them.
func stream(n int, seed uint64) []history.Past {
	rng := rand.New(rand.NewPCG(seed, 2))
	usual := make([]float64, 30)
	for i := range usual {
		usual[i] = math.Exp(3 + 7*rng.Float64())
	}

	var y yard
	for range n {
		k := rng.IntN(60)
		if k >= len(usual) {
			y.ran(0.01+rng.Float64(), command("ann", "", "true"))
			continue
		}

		// Every program has runs of its own scatter.
		scatter := 0.05 + 0.3*float64(k%3)
		f := command(fmt.Sprint("u", k%7), fmt.Sprint("p", 'a'+k), fmt.Sprintf("python p%d.py --x %d", k, rng.IntN(3)))
		y.ran(usual[k]*math.Exp(scatter*rng.NormFloat64()), f)
	}

	return y.past
}

// TestIntervalsHoldInFourOfFiveCasesWhateverElseRuns: of the long ones too, though half of all jobs take a moment.
func TestIntervalsHoldInFourOfFiveCasesWhateverElseRuns(t *testing.T) {
	t.Parallel()

	past := stream(1500, 1)
	x := repeat.New(past[:500])
	long, held, all, heldOfAll, guesses := 0, 0, 0, 0, 0

	for i := 500; i < len(past); i++ {
		p := &past[i]

		q, ok := x.Predict(&repeat.Query{Features: p.Features, Before: p.Finished})
		if ok && q.Guess {
			guesses++
		}

		if ok && !q.Guess {
			covered := q.Seconds.Low <= p.Seconds && p.Seconds <= q.Seconds.High
			all++

			if covered {
				heldOfAll++
			}

			if p.Seconds > 60 {
				long++

				if covered {
					held++
				}
			}
		}

		x = x.With(past[i : i+1])
	}

	share := func(part, of int) float64 { return float64(part) / float64(of) }
	t.Logf("%d of %d, %d of %d long ones, %d guesses", heldOfAll, all, held, long, guesses)

	if s := share(heldOfAll, all); s < 0.74 || s > 0.9 || all < 900 {
		t.Errorf("%.0f %% of %d intervals held", 100*s, all)
	}

	if s := share(held, long); s < 0.72 || s > 0.9 {
		t.Errorf("%.0f %% of %d intervals of long jobs held", 100*s, long)
	}
}

func TestAnIndexDoesNotDependOnTheOrderNorOnHowItCameAbout(t *testing.T) {
	t.Parallel()

	past := stream(300, 3)
	whole := repeat.New(past)

	shuffled := slices.Clone(past)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(shuffled), func(i, k int) {
		shuffled[i], shuffled[k] = shuffled[k],
			shuffled[i]
	})

	first := repeat.New(past[:200])
	before, _ := first.Predict(&repeat.Query{Features: past[299].Features})

	for name, x := range map[string]*repeat.Index{
		"in another order": repeat.New(shuffled),
		"in two parts":     first.With(past[200:]),
	} {
		for i := range past {
			want, known := whole.Predict(&repeat.Query{Features: past[i].Features})
			got, ok := x.Predict(&repeat.Query{Features: past[i].Features})
			if diff := cmp.Diff(want, got); diff != "" || ok != known {
				t.Fatalf("%s, job %d: %s", name, i, diff)
			}
		}
	}

	if after, _ := first.Predict(&repeat.Query{Features: past[299].Features}); after != before {
		t.Errorf("the original has changed: %+v, was %+v", after, before)
	}
}
