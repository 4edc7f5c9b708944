package metrics

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// begun is when the programs of the tests start: shortly before the files in testdata were written.
var begun = time.Unix(1794744000, 0)

// program is one as the gatherer sees it: a folder, files, and what it prints.
type program struct {
	t      testing.TB
	work   string
	output bytes.Buffer
	log    *logs.Writer
	now    time.Time
	g      *Gatherer
}

func start(t testing.TB, rules ...job.MetricRule) *program {
	t.Helper()
	p := &program{t: t, work: t.TempDir(), now: begun}
	p.log = logs.NewWriter(&p.output, 0)
	p.follow(rules...)

	return p
}

// follow begins to gather, as an agent does that has just started.
func (p *program) follow(rules ...job.MetricRule) {
	p.t.Helper()

	g, err := New(Run{
		Run:        "j1.1",
		Epoch:      1,
		Started:    begun,
		Roots:      []string{filepath.Join(p.work, "work"), filepath.Join(p.work, "checkpoints")},
		Rules:      rules,
		SDKFile:    filepath.Join(p.work, "told.jsonl"),
		IntakeFile: filepath.Join(p.work, "received.jsonl"),
		Output:     p.open,
	})
	if err != nil {
		p.t.Fatal(err)
	}

	p.g = g
}

func (p *program) open(offset int64) (io.ReadCloser, int64, error) {
	return io.NopCloser(bytes.NewReader(p.output.Bytes()[offset:])), int64(p.output.Len()), nil
}

// print prints, to the standard error output if told so.
func (p *program) print(text string) { p.printTo(logs.Stdout, text) }

func (p *program) printTo(stream logs.Stream, text string) {
	p.t.Helper()

	if err := p.log.Write(stream, p.now, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

// write writes a file as a whole, at the time that it is.
func (p *program) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.work, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}

	p.touch(path)
}

// add adds to a file.
func (p *program) add(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.work, name)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}

	if _, err := f.WriteString(text); err != nil {
		p.t.Fatal(err)
	}

	if err := f.Close(); err != nil {
		p.t.Fatal(err)
	}

	p.touch(path)
}

func (p *program) touch(path string) {
	p.t.Helper()

	if err := os.Chtimes(path, p.now, p.now); err != nil {
		p.t.Fatal(err)
	}
}

// real writes a file of testdata.
func (p *program) real(from, name string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", from))
	if err != nil {
		p.t.Fatal(err)
	}

	p.write(name, string(text))
}

// poll lets time pass and polls until there is nothing more.
func (p *program) poll() {
	p.t.Helper()
	p.pollEnded(false)
}

func (p *program) pollEnded(ended bool) {
	p.t.Helper()
	p.now = p.now.Add(scanEvery)
	for range 100 {
		more, err := p.g.Poll(p.now, ended)
		if err != nil {
			p.t.Fatal(err)
		}

		if !more {
			return
		}
	}

	p.t.Fatal("there is always more")
}

// curve writes what is known of a metric: "5=0.5 10=0.25 from output (lines)".
func (p *program) curve(name string) string {
	s := p.g.Series(name)
	if s == nil {
		return ""
	}

	var out []string
	for _, point := range s.Points {
		out = append(out, fmt.Sprintf("%g=%.4g", point.Step, point.Value))
	}

	return strings.Join(out, " ") + " from " + s.Source
}

// expect compares a metric.
func (p *program) expect(name, want string) {
	p.t.Helper()

	if got := p.curve(name); got != want {
		p.t.Errorf("%s is\n%s, want\n%s", name, got, want)
	}
}

// progress writes how far the program says it is.
func (p *program) progress() string {
	return fmt.Sprintf("%g of %g", p.g.progress.done.Value, p.g.progress.total.Value)
}
