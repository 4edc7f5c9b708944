package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// deploy is where what an operator installs beside the yard lies.
const deploy = "../../deploy"

// scrape returns what Prometheus would read of a server in which everything has
// happened that brings forth a metric.
func scrape(t *testing.T) string {
	t.Helper()
	y := newYard(t)
	y.do(yardmaster.PutUser{User: "ann", Role: tenant.Researcher, By: "test"})
	y.do(yardmaster.PutUser{User: "root", Role: tenant.Admin, By: "test"})

	y.do(
		yardmaster.AddToken{
			By: "test",
			Token: tenant.Token{
				ID:       "join",
				Kind:     tenant.JoinToken,
				Owner:    "root",
				Class:    "local",
				UsesLeft: 9,
				Expires:  y.clock.Now().Add(time.Hour),
			},
		},
	)

	y.do(
		yardmaster.PutQuota{
			By:    "root",
			Quota: tenant.Quota{Subject: tenant.Subject{User: "ann"}, Budget: 100_000_000, GPUHours: 100},
		},
	)

	y.do(yardmaster.Join{Token: "join", Name: "a", Inventory: fleet.Inventory{
		Address: "a", CPUs: 8000, Memory: 8 << 30, GPUs: []fleet.GPU{{UUID: "g", Model: "L4", Memory: 24 << 30}},
	}})

	y.do(
		yardmaster.Submit{
			Owner: "ann",
			Jobs: []yardmaster.NewJob{{Spec: &job.Spec{Run: "true", Place: job.PlaceAny, Resources: job.Resources{
				GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000,
			}}}},
		},
	)

	y.board.Called("testcloud", "list", time.Second, nil)
	y.advance(time.Minute)

	use := job.Use{At: y.clock.Now(), Share: &job.ShareUse{Mode: "whole"}}
	y.srv.TakeUse(t.Context(), "a", []api.RankReport{{Run: "j1.1", State: job.RunRunning, Use: &use}},
		[]yardmaster.Order{{Run: "j1.1", Node: "a", Launch: job.Launch{GPUs: []int{0}, Share: 0.5}}})

	got := y.raw(y.http, http.MethodGet, "/metrics", "", "")
	if got.status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", got.status, got.body)
	}

	return string(got.body)
}

var (
	metricName = regexp.MustCompile(`trainyard_[a-z0-9_]+`)
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (trainyard_[a-z0-9_]+) (\w+)$`)
)

// families returns the type of each metric of ours in a scrape.
func families(text string) map[string]string {
	all := map[string]string{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}

	return all
}

// unknown returns the metrics in an expression that a scrape does not have. The series
// of a histogram have names of their own.
func unknown(expr string, known map[string]string) []string {
	var missing []string
	for _, name := range metricName.FindAllString(expr, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && known[cut] == "histogram" {
				base = cut
			}
		}

		if known[base] == "" || known[base] == "histogram" && base == name {
			missing = append(missing, name)
		}
	}

	return missing
}

// dashboard is what of a Grafana dashboard asks Prometheus something.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name  string
			Query json.RawMessage
		}
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "trainyard.json"))
	if err != nil {
		t.Fatal(err)
	}

	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}

	return &d
}

// rules is a file of alert rules.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert       string `yaml:",omitempty"`
	Record      string `yaml:",omitempty"`
	Expr        string
	For         string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

func readRules(t *testing.T) *rules {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}

	var r rules
	if err := yaml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}

	return &r
}

// TestDashboardAndAlertsAskForMetricsThatExist compares every expression with a scrape.
func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := families(scrape(t))
	asked := 0
	look := func(where, expr string) {
		asked++

		for _, name := range unknown(expr, known) {
			t.Errorf("%s asks for %s, which the server does not have: %s", where, name, expr)
		}

		if !metricName.MatchString(expr) && !strings.HasPrefix(expr, "up{") {
			t.Errorf("%s asks for nothing of ours: %s", where, expr)
		}
	}

	d := readDashboard(t)

	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q has a number that is taken, or lies beyond the edge", p.Title)
		}

		ids[p.ID] = true

		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %q shows nothing", p.Title)
		}

		for _, target := range p.Targets {
			look("panel "+p.Title, target.Expr)
		}
	}

	for _, v := range d.Templating.List {
		for _, name := range unknown(string(v.Query), known) {
			t.Errorf("variable %s asks for %s, which the server does not have", v.Name, name)
		}
	}

	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			look("alert "+r.Alert, r.Expr)
		}
	}

	if asked < 60 {
		t.Errorf("only %d expressions were found: the files are read wrongly", asked)
	}
}

// TestEveryMetricIsDescribed compares the table that operators read with a scrape.
func TestEveryMetricIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	known, described := families(scrape(t)), map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(trainyard_[a-z0-9_]+)").FindAllStringSubmatch(string(text), -1) {
		if described[m[1]] {
			t.Errorf("%s is described twice", m[1])
		}

		described[m[1]] = true

		if known[m[1]] == "" {
			t.Errorf("%s is described, and the server does not have it", m[1])
		}
	}

	for name := range known {
		if !described[name] {
			t.Errorf("%s is not described", name)
		}
	}
}

// TestEveryAlertHasATest looks that each is shown silent and firing.
func TestEveryAlertHasATest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts_test.yml"))
	if err != nil {
		t.Fatal(err)
	}

	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string           `yaml:"alertname"`
				Want  []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}

	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}

	silent, firing := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			silent[c.Alert] = silent[c.Alert] || len(c.Want) == 0
			firing[c.Alert] = firing[c.Alert] || len(c.Want) > 0
		}
	}

	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if !silent[r.Alert] || !firing[r.Alert] {
				t.Errorf("alert %s is not shown both silent and firing", r.Alert)
			}

			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s says too little", r.Alert)
			}
		}
	}
}

// promtool returns Prometheus' own checker, from PATH or from where
// scripts/setup-promtool.sh puts it.
func promtool(t *testing.T) string {
	t.Helper()

	if found, err := exec.LookPath("promtool"); err == nil {
		return found
	}

	cache, err := os.UserCacheDir()
	if err == nil {
		found := filepath.Join(cache, "trainyard", "tools", "promtool")
		_, err = os.Stat(found)
		if err == nil {
			return found
		}
	}

	why := fmt.Sprintf("needs promtool, which scripts/setup-promtool.sh installs: %v", err)
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)

	return ""
}

// check runs promtool in a folder and returns what it says if it is not content.
func check(t *testing.T, dir, input string, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), promtool(t), args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
	}

	return nil
}

func TestPromtoolIsContent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(deploy, "prometheus")
	for name, args := range map[string][]string{
		"the rules are rules":           {"check", "rules", "alerts.yml"},
		"the configuration is one":      {"check", "config", "prometheus.yml"},
		"the rules fire when they must": {"test", "rules", "alerts_test.yml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if err := check(t, dir, "", args...); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("the names of metrics follow the conventions", func(t *testing.T) {
		t.Parallel()

		if err := check(t, ".", scrape(t), "check", "metrics"); err != nil {
			t.Error(err)
		}
	})

	t.Run("what the dashboard asks is PromQL", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := writeExprs(filepath.Join(dir, "exprs.yml"), readDashboard(t)); err != nil {
			t.Fatal(err)
		}

		if err := check(t, dir, "", "check", "rules", "--lint=none", "exprs.yml"); err != nil {
			t.Error(err)
		}
	})

	t.Run("a rule that is none is found", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(
			filepath.Join(dir, "bad.yml"),
			[]byte("groups: [{name: g, rules: [{alert: A, expr: 'sum(('}]}]\n"),
			0o600,
		); err != nil {
			t.Fatal(err)
		}

		var exit *exec.ExitError
		if err := check(t, dir, "", "check", "rules", "bad.yml"); !errors.As(err, &exit) {
			t.Errorf("promtool takes a broken rule: %v", err)
		}
	})
}

// writeExprs writes what a dashboard asks as rules, with its variables filled in.
func writeExprs(path string, d *dashboard) error {
	fill := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	var r rules
	r.Groups = slices.Grow(r.Groups, 1)[:1]
	r.Groups[0].Name = "dashboard"
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			r.Groups[0].Rules = append(
				r.Groups[0].Rules,
				rule{Record: fmt.Sprintf("panel:%d:%d", p.ID, i), Expr: fill.Replace(target.Expr)},
			)
		}
	}

	var text bytes.Buffer
	if err := yaml.NewEncoder(&text).Encode(&r); err != nil {
		return err
	}

	return os.WriteFile(path, text.Bytes(), 0o600)
}

// TestFiguresSurviveARestart compares what is there before and after.
func TestFiguresSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	wants := []string{
		`trainyard_jobs{state="pending"} 1`,
		`trainyard_jobs{state="starting"} 1`,
		"trainyard_queued_jobs 1",
		"trainyard_live_runs 1",
		"trainyard_open_orders 1",
		`trainyard_nodes{class="local",state="ready"} 1`,
		`trainyard_gpus{class="local",model="L4",state="running"} 1`,
		`trainyard_budget_limit_dollars{period="month",subject="user/ann"} 100`,
	}

	look := func(t *testing.T, y *yard) {
		t.Helper()
		got := string(y.raw(y.http, http.MethodGet, "/metrics", "", "").body)
		for _, line := range wants {
			if !strings.Contains(got, "\n"+line+"\n") {
				t.Errorf("%s is not there", line)
			}
		}
	}

	t.Run("before", func(t *testing.T) {
		y := startYard(t, dir)
		y.do(yardmaster.PutUser{User: "ann", Role: tenant.Admin, By: "test"})

		y.do(
			yardmaster.AddToken{
				By: "test",
				Token: tenant.Token{
					ID:       "join",
					Kind:     tenant.JoinToken,
					Owner:    "ann",
					Class:    "local",
					UsesLeft: 9,
					Expires:  y.clock.Now().Add(time.Hour),
				},
			},
		)

		y.do(yardmaster.PutQuota{By: "root", Quota: tenant.Quota{Subject: tenant.Subject{User: "ann"}, Budget: 100_000_000}})
		y.do(yardmaster.Join{Token: "join", Name: "a", Inventory: fleet.Inventory{
			Address: "a", CPUs: 8000, Memory: 8 << 30, GPUs: []fleet.GPU{{UUID: "g", Model: "L4", Memory: 24 << 30}},
		}})
		one := yardmaster.NewJob{Spec: &job.Spec{Run: "true", Place: job.PlaceAny, Resources: job.Resources{
			GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000,
		}}}
		y.do(yardmaster.Submit{Owner: "ann", Jobs: []yardmaster.NewJob{one}})
		y.do(yardmaster.Submit{Owner: "ann", Jobs: []yardmaster.NewJob{one}})
		look(t, y)
	})

	t.Run("after", func(t *testing.T) { look(t, startYard(t, dir)) })
}
