package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim/report"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/whatif"
)

// page lets a person look at what the tests look at.
var page = flag.String("page", "", "write the page of the tests to this folder")

const world = `
energy 0.30 pue 1.3
node  own[1..2] local    4x V100:16GB watts 150,420,690,960,1230
cloud provisioned     ondemand 4x A100:40GB hourly 12 boot 3m
job big   at 0s  user ada gpus 4    work 14400 speed V100=4:1 speed A100=4:2 deadline 3h late_cost $30
job long  at 5m  user ada gpus 1..4 work 20000 speed 1:1,2:1.9,4:3.6 start 1m save 20s
job b-tag at 9m  user ben gpus 2    lasts 40m
job quick at 30m user ben gpus 4    work 600 speed 4:1 start 30s
job night at 1h  user cyn gpus 2    lasts 3h
workload poisson jobs 25 every 9m gpus 1,2,4 median 30m sigma 0.9 users 3
`

// cells simulates the world with some policies.
func cells(t *testing.T, seeds int, loads []float64, names ...string) []whatif.Cell {
	t.Helper()
	s, err := scenario.Parse("small & large.yard", []byte(world))
	if err != nil {
		t.Fatal(err)
	}

	m := whatif.Matrix{
		Sources: []whatif.Source{{Name: s.Name, Jobs: s.Total(), Seed: s.Seed, Config: s.Config, Run: s.Simulate}},
		Loads:   loads, Seeds: seeds, Parallel: 2, Keep: 500,
	}

	for _, n := range names {
		newPolicy, err := catalogue.All(nil).Make(n)
		if err != nil {
			t.Fatal(err)
		}

		m.Policies = append(m.Policies, whatif.Policy{Name: n, New: newPolicy})
	}

	all, err := whatif.Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}

	if want := len(names) * seeds * len(loads); len(all) != want {
		t.Fatalf("%d cells, want %d", len(all), want)
	}

	return all
}

func TestTheTableFitsTheTerminalAndMarksTheBest(t *testing.T) {
	t.Parallel()
	all := cells(t, 3, []float64{1}, "equal-share", "fifo", "fifo-strict", "srtf")

	var wide, narrow, color bytes.Buffer
	for out, style := range map[*bytes.Buffer]report.Style{&wide: {}, &narrow: {Width: 80}, &color: {Color: true}} {
		if err := report.Table(out, all, style); err != nil {
			t.Fatal(err)
		}
	}

	for _, want := range []string{"small & large: 30 jobs, mean of 3 seeds", "completion  mean", "            p99", "utilisation", "±", "lateness", "fairness"} {
		if !strings.Contains(wide.String(), want) {
			t.Errorf("the table does not have %q:\n%s", want, &wide)
		}
	}

	if !strings.Contains(wide.String(), " *") || strings.Contains(wide.String(), "\x1b") {
		t.Errorf("without colours the best has a star:\n%s", &wide)
	}

	if !strings.Contains(color.String(), "\x1b[32m") || strings.Contains(color.String(), " *") {
		t.Errorf("with colours the best is green:\n%s", &color)
	}

	for line := range strings.Lines(narrow.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("a line of %d for a terminal of 80: %s", n, line)
		}
	}

	if strings.Count(narrow.String(), "completion") < 2 {
		t.Errorf("a table that is too wide is broken into several:\n%s", &narrow)
	}
}

func TestCSVHasALineForEachSimulationWithPlainNumbers(t *testing.T) {
	t.Parallel()
	all := cells(t, 2, []float64{1, 2}, "fifo", "srtf")

	var out bytes.Buffer
	if err := report.CSV(&out, all); err != nil {
		t.Fatal(err)
	}

	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	if len(rows) != 9 || rows[1][0] != "small & large" || rows[1][1] != "fifo" || rows[2][3] != "2" ||
		rows[3][1] != "srtf" ||
		rows[5][2] != "2" {
		t.Fatalf("not in the order of source, load, policy and seed: %v", rows)
	}

	for i, name := range rows[0][2:] {
		if _, err := strconv.ParseFloat(rows[1][i+2], 64); err != nil {
			t.Errorf("%s is no number: %v", name, err)
		}
	}
}

func TestJSONHasEachSimulationAndTheirSums(t *testing.T) {
	t.Parallel()
	all := cells(t, 3, []float64{1}, "fifo")

	var out bytes.Buffer
	if err := report.JSON(&out, all); err != nil {
		t.Fatal(err)
	}

	var doc report.Document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}

	if len(doc.Cells) != 3 || len(doc.Summary) != 1 || doc.Summary[0].Seeds != 3 {
		t.Fatalf("%d simulations, %d sums", len(doc.Cells), len(doc.Summary))
	}

	sum := 0.0
	for _, c := range doc.Cells {
		sum += c.Measures["completion_mean_s"]

		if c.ByClass["local"] <= 0 || c.ByClass["ondemand"] <= 0 {
			t.Errorf("money by class: %v", c.ByClass)
		}
	}

	got := doc.Summary[0].Measures["completion_mean_s"]
	if d := got.Mean - sum/3; d > 1e-6 || d < -1e-6 || got.Half <= 0 {
		t.Errorf("mean %v ± %v, want %v with an interval", got.Mean, got.Half, sum/3)
	}
}

var outside = regexp.MustCompile(`(?i)(https?:|//[a-z]|url\(|@import|<script|<link|<img|<iframe|src=)`)

func TestThePageNeedsNothingFromOutsideAndIsWellFormed(t *testing.T) {
	t.Parallel()
	all := cells(t, 3, []float64{1, 1.5}, "equal-share", "fifo", "fifo-strict", "las", "srtf")
	for i := range all {
		all[i].Source = `<script>alert("x")</script>`
	}

	var out, again bytes.Buffer
	if err := report.HTML(&out, report.Title(all), "trainyard simulate", all); err != nil {
		t.Fatal(err)
	}

	if err := report.HTML(&again, report.Title(all), "trainyard simulate", all); err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same cells gave two pages")
	}

	text := out.String()
	if found := outside.FindString(text); found != "" {
		t.Errorf("the page reaches out by %q", found)
	}

	if strings.Contains(text, `alert("x")`) {
		t.Error("a name got into the page unescaped")
	}

	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1)

	// Utilisation, completion, cost and a Gantt chart for each policy, each in two
	// sizes, for two loads.
	if want := (3 + 5) * 2 * 2; len(svgs) != want {
		t.Errorf("%d plots, want %d", len(svgs), want)
	}

	for _, s := range svgs {
		if err := xml.Unmarshal([]byte(s), new(struct{})); err != nil {
			t.Fatalf("a plot is not well formed: %v\n%.300s", err, s)
		}

		if strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
			t.Errorf("a plot has a value that is no number: %.300s", s)
		}
	}

	if *page != "" {
		write(t, cells(t, 3, []float64{1, 1.5}, "equal-share", "fifo", "las", "srtf"))
	}
}

func write(t *testing.T, all []whatif.Cell) {
	t.Helper()
	f, err := os.Create(filepath.Join(*page, "page.html"))
	if err != nil {
		t.Fatal(err)
	}

	if err := report.HTML(
		f,
		report.Title(all),
		"trainyard simulate small.yard --policy equal-share,fifo,las,srtf --load 1,1.5 --seeds 3",
		all,
	); err != nil {
		t.Fatal(err)
	}

	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnEmptyComparisonIsNoFailure(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, err := range []error{report.Table(&out, nil, report.Style{}), report.CSV(&out, nil), report.JSON(&out, nil), report.HTML(&out, "nothing", "", nil)} {
		if err != nil {
			t.Error(err)
		}
	}
}
