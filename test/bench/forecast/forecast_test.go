package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/test/bench/information"
	"trainyard/test/golden"
)

// put writes files into a folder and returns it.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func TestFolderIsReadInBothForms(t *testing.T) {
	dir := put(t, map[string]string{
		"index.csv": "curve,group,target,direction,kind,system\n" +
			"a,lab,0.5,falling,cnn,box\n" +
			"b,home,0.9,rising,cnn,\n" +
			"late,home,0.1,falling,cnn,\n",
		"a.csv":    "step,value,t_s\n1,2,10\n2,1,20\n3,0.7,30\n4,0.5,40\n5,0.4,50\n",
		"many.csv": "curve,step,value\nb,10,0.1\nb,20,0.5\nb,30,0.8\nb,40,0.95\nlate,1,4\nlate,2,3\nlate,3,2\nlate,4,1\n",
		"own.csv":  "t_s,value\n1,9\n2,8\n3,7\n4,6\n",
		"up.csv":   "step,value\n0,0\n1,0.1\n2,0.3\n3,NaN\n4,0.4\n5,0.6\n",
		"notes.md": "not a curve",
	})

	list, left, err := readFolder(dir)
	if err != nil {
		t.Fatal(err)
	}

	type short struct {
		Name, Group, System, Source string
		End                         float64
		Goal                        curve.Goal
		Points                      int
	}

	var got []short
	for _, s := range list {
		got = append(got, short{s.name, s.Group, s.excludedSystem, s.source, s.End, s.Curve.Goal, len(s.Curve.X)})
	}

	want := []short{
		{"a", "lab", "box", "cnn", 4, curve.Goal{Value: 0.5, Set: true}, 4},
		{"b", "home", "", "cnn", 40, curve.Goal{Value: 0.9, Rising: true, Set: true}, 4},
		{"own", "own", "", "curves", 4, curve.Goal{Value: 6, Set: true}, 4},
		{"up", "up", "", "curves", 5, curve.Goal{Value: 0.6, Rising: true, Set: true}, 4},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]string{"late is left out: it does not reach its target"}, left); diff != "" {
		t.Error(diff)
	}
}

func TestFolderSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
	}{
		{"a.csv", "step,loss\n1,2\n", `there is no column "value"`},
		{"a.csv", "step,value\n1,x\n", `a.csv:2: "x" is not a number`},
		{"a.csv", "value\n1\n", "neither a step nor a t_s"},
		{"index.csv", "curve,direction\na,up\n", `direction is "up"; it is falling or rising`},
		{"readme.txt", "", "there are no curves in"},
	} {
		_, _, err := readFolder(put(t, map[string]string{c.name: c.text}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.name, c.text, err, c.want)
		}
	}
}

// familyOf makes up runs that are relatives: the same shape with other lengths, and some noise.
func familyOf(groups, each int) []sample {
	rng := rand.New(rand.NewPCG(3, 4))
	var list []sample
	for g := range groups {
		for k := range each {
			s := sample{source: "made", name: fmt.Sprintf("g%d-%d", g, k), excludedSystem: fmt.Sprintf("box%d", g%3)}
			s.Job, s.Group = id.Job(s.name), fmt.Sprintf("g%d", g)
			s.Features = history.Features{Name: "made", Task: "made", Model: "made", Metric: "loss"}
			s.Curve.Goal = curve.Goal{Value: 1, Set: true}

			length := 1000 * math.Exp(rng.NormFloat64()/3)
			for i := 1; i <= 60; i++ {
				x := float64(i) / 50
				s.add(x*length, 3-2*math.Pow(x, 0.5+0.1*rng.Float64())+0.005*rng.NormFloat64())
			}

			if s.finish() {
				list = append(list, s)
			}
		}
	}

	return list
}

func TestGroupsAndSystemsAreHidden(t *testing.T) {
	list := familyOf(12, 3)
	parts := makeFolds(list)

	where := map[string]int{}
	for k, f := range parts {
		for _, s := range f.test {
			if before, ok := where[s.Group]; ok && before != k {
				t.Fatalf("group %s is in part %d and in part %d", s.Group, before, k)
			}

			where[s.Group] = k

			c, ok := s.until(0.5)
			if !ok {
				t.Fatalf("%s has too few points", s.name)
			}

			a := forecast.Ask(&forecast.Case{Job: s.Job, Curve: c, Features: s.Features}, f.seen(s), f.record)
			for _, like := range a.Similar {
				o := f.trainingRuns[like.Job]
				if o == nil || o.Group == s.Group || o.excludedSystem == s.excludedSystem {
					t.Errorf("%s was shown %s", s.name, like.Job)
				}
			}

			if len(a.Similar) == 0 {
				t.Errorf("%s was shown nothing", s.name)
			}
		}
	}

	if len(where) != 12 {
		t.Errorf("%d groups were dealt", len(where))
	}
}

func TestFiguresHaveTheirNames(t *testing.T) {
	list := familyOf(10, 3)
	figures, err := report(io.Discard, score(makeFolds(list)), []string{"made"}, []string{"made"})
	if err != nil {
		t.Fatal(err)
	}

	for _, method := range []string{"history", "nohistory", "blend", "poly3", "regression"} {
		for _, key := range []string{"err20", "err40_p80", "err60", "err80", "failures_pct"} {
			for _, source := range []string{"all", "made"} {
				if _, ok := figures[source+"_"+method+"_"+key]; !ok {
					t.Errorf("%s_%s_%s is missing", source, method, key)
				}
			}
		}
	}

	for _, key := range []string{"coverage80", "width80", "failures_pct", "made_blend_coverage80", "made_nohistory_width80"} {
		if _, ok := figures[key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}

	if e := figures["made_history_err40"]; !(e < 10) {
		t.Errorf("relatives are foretold with an error of %.1f %%", e)
	}

	if _, err := json.Marshal(figures); err != nil {
		t.Error(err)
	}
}

func TestSeparationOfChances(t *testing.T) {
	for _, c := range []struct {
		name        string
		list        []goalCase
		area, brier float64
	}{
		{"all right", []goalCase{{missProbability: 0, reached: true}, {missProbability: 1}}, 1, 0},
		{"all wrong", []goalCase{{missProbability: 1, reached: true}, {missProbability: 0}}, 0, 1},
		{"no idea", []goalCase{{missProbability: 0.5, reached: true}, {missProbability: 0.5}}, 0.5, 0.25},
		{"three of four", []goalCase{{missProbability: 0.1, reached: true}, {missProbability: 0.6, reached: true}, {missProbability: 0.4}, {missProbability: 0.9}}, 0.75, (0.01 + 0.36 + 0.36 + 0.01) / 4},
	} {
		area, brier := aucAndBrier(c.list)
		if math.Abs(area-c.area) > 1e-12 || math.Abs(brier-c.brier) > 1e-12 {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, area, brier, c.area, c.brier)
		}
	}
}

// What nohistory promises on the public curves. The bounds leave room above what was measured.
func TestNoHistoryOnPublicCurves(t *testing.T) {
	dir := os.Getenv("TRAINYARD_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}

	list, left, err := readAll(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(left) > 0 {
		t.Skipf("the public curves are not here: %s", left[0])
	}

	var errs [len(calibrate.ReplayPoints)][]float64
	for i := range list {
		s := &list[i]
		for part, share := range calibrate.ReplayPoints {
			c, ok := s.until(share)
			if !ok {
				continue
			}

			e := curve.Best(&c)
			if now := c.X[len(c.X)-1]; e.Fails() || e.End < now || e.End > horizon*now*(1+1e-9) {
				t.Errorf("%s at %v: %+v", s.name, share, e)
			}

			errs[part] = append(errs[part], math.Abs(e.End-s.End)/s.End)
		}
	}

	for part, most := range []float64{0.42, 0.25, 0.15, 0.08} {
		if got := quantileOf(errs[part], 0.5); !(got <= most) {
			t.Errorf("the median error at %v is %.3f, at most %.2f was promised", calibrate.ReplayPoints[part], got, most)
		}
	}
}

func TestThePageSaysWhatEachMethodKnows(t *testing.T) {
	t.Parallel()

	path := filepath.Join("..", "..", "..", "docs", "explanation", "benchmarks-forecast.md")

	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	want, err := information.Page(string(page), comparisons())
	if err != nil {
		t.Fatal(err)
	}

	golden.Compare(t, path, want)
}
