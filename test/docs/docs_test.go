package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/test/yardtest"
)

// patience bounds every wait; it is far longer than anything takes.
const patience = 10 * time.Minute

// binaries is the folder with the real binary, put first on the PATH of every session.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "docs-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(folder, "trainyard/cmd/trainyard")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	binaries = folder

	return m.Run()
}

// root is the repository, seen from this package.
const root = "../.."

// pages lists the documentation of the repository, except the records of decisions.
func pages(t *testing.T) []string {
	t.Helper()

	var list []string

	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		if d.IsDir() && (skippedFolders[d.Name()] || strings.HasPrefix(d.Name(), ".") && rel != ".") {
			return filepath.SkipDir
		}

		if !d.IsDir() && strings.HasSuffix(path, ".md") {
			list = append(list, rel)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return list
}

// skippedFolders hold no pages for readers: builds, what others wrote, test data and the records of decisions.
var skippedFolders = map[string]bool{"adr": true, "build": true, "node_modules": true, "testdata": true}

// TestEveryCommandInTheDocumentationRuns runs each page as a reader would and holds what is printed against what the
// page shows.
func TestEveryCommandInTheDocumentationRuns(t *testing.T) {
	t.Parallel()

	for _, name := range pages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}

			page, err := Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}

			for _, s := range page.Skipped {
				t.Logf("%s:%d is not run: %s", name, s.Line, s.Reason)
			}

			if len(page.Steps) > 0 {
				play(t, name, page)
			}
		})
	}
}

// session is a reader at a terminal.
type session struct {
	folder string // working directory of the commands
	env    []string
	count  int
}

// play runs the steps of a page, one after the other, in a folder of its own.
func play(t *testing.T, name string, page *Page) {
	t.Helper()

	home, err := yardtest.NewFolder("docs-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := yardtest.KillAll(home); err != nil {
			t.Errorf("end what %s started: %v", name, err)
		}

		if !t.Failed() {
			_ = os.RemoveAll(home) // it is in a folder that is cleared anyhow
		}
	})

	s := &session{folder: filepath.Join(home, "work"), env: environment(t, home)}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.CopyFS(filepath.Join(s.folder, "examples"), os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}

	if err := os.CopyFS(filepath.Join(s.folder, "scenarios"), os.DirFS(filepath.Join(root, "scenarios"))); err != nil {
		t.Fatal(err)
	}

	for _, step := range page.Steps {
		s.do(t, name, step)

		if t.Failed() {
			return // what follows would only fail because of this
		}
	}
}

// environment is that of a new user: no login, no settings.
func environment(t *testing.T, home string) []string {
	t.Helper()

	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}

	listen, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return []string{
		"HOME=" + home,
		"XDG_CONFIG_HOME=" + filepath.Join(home, ".config"),
		"XDG_CACHE_HOME=" + filepath.Join(home, ".cache"),
		"PATH=" + binaries + ":" + os.Getenv("PATH"),
		"LANG=C.UTF-8",
		"TZ=UTC",
		"NO_COLOR=1",
		"REPOSITORY=" + absolute,
		// A yard that the page itself starts must not take the address of another page's, and reports often, because
		// what a page shows is seen only after the agent's next report.
		"TRAINYARD_LISTEN=" + listen,
		"TRAINYARD_REPORT_EVERY=200ms",
		// The reader is not root, and jobs use the Python of whoever runs the tests.
		"TRAINYARD_ISOLATION=none",
	}
}

// open starts the yard that a page wants.
func (s *session) open(t *testing.T, home, kind string) {
	t.Helper()

	what, flags, _ := strings.Cut(kind, " ")
	switch what {
	case "up":
		address, err := yardtest.FreeAddress(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		command := fmt.Sprintf(
			"exec trainyard up --data %q --listen %s --report-every 200ms %s",
			filepath.Join(home, "yard"),
			address,
			flags,
		)

		s.start(t, command, filepath.Join(home, "yard.log"))
		s.await(t, "trainyard nodes -o json | grep -q '\"state\": *\"idle\"'", filepath.Join(home, "yard.log"))
	case "server":
		yard := &yardtest.Yard{
			Folder: home,
			Binary: filepath.Join(binaries, "trainyard"),
			Flags:  append(strings.Fields(flags), "--report-every", "200ms"),
		}

		if err := yard.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		s.env = append(s.env, "SERVER="+yard.URL(), "BOOTSTRAP="+yard.Bootstrap())
		s.await(t, "trainyard login $SERVER --token - <<<$BOOTSTRAP", yard.ServerLog())
	default:
		t.Fatalf("unknown session %q", kind)
	}
}

func (s *session) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail\n"+text)
	cmd.Dir = s.folder
	cmd.Env = s.env

	return cmd
}

// start runs a command until the page is over.
func (s *session) start(t *testing.T, text, log string) {
	t.Helper()

	if _, err := yardtest.Start(s.command(t.Context(), text), log); err != nil {
		t.Fatal(err)
	}
}

// await repeats a command until it succeeds.
func (s *session) await(t *testing.T, text, log string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for {
		out, err := s.command(ctx, text).CombinedOutput()
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("%s does not succeed: %s\n%s", text, out, yardtest.Tail(log, 20))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitOutput waits until a command in the background has printed what the page shows.
func awaitOutput(t *testing.T, what string, expected []string, log string) {
	t.Helper()

	if expected == nil {
		return
	}

	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		out, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}

		if Matches(expected, string(out)) {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s\nprinted:\n%s\nthe page shows:\n%s", what, out, strings.Join(expected, "\n"))
		}
	}
}

// do carries out one step of a page.
func (s *session) do(t *testing.T, name string, step Step) {
	t.Helper()

	if step.Session != "" {
		s.open(t, filepath.Dir(s.folder), step.Session)
		return
	}

	if step.File != "" {
		path := filepath.Join(s.folder, step.File)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(step.Content), 0o600)); err != nil {
			t.Fatal(err)
		}

		return
	}

	if step.Background {
		s.count++
		log := filepath.Join(s.folder, fmt.Sprintf("background-%d.log", s.count))
		s.start(t, "exec "+step.Command, log)
		awaitOutput(t, fmt.Sprintf("%s:%d: $ %s", name, step.Line, step.Command), step.Output, log)

		return
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	var out bytes.Buffer
	cmd := s.command(ctx, step.Command)
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := cmd.Run()

	var failed *exec.ExitError

	status := 0
	if errors.As(err, &failed) {
		status = failed.ExitCode()
	} else if err != nil {
		t.Fatalf("%s:%d: $ %s: %v", name, step.Line, step.Command, err)
	}

	if status != step.Status {
		t.Errorf(
			"%s:%d: $ %s\nexit status %d, the page says %d; it printed:\n%s",
			name,
			step.Line,
			step.Command,
			status,
			step.Status,
			out.String(),
		)

		return
	}

	t.Logf("%s:%d: $ %s\n%s", name, step.Line, step.Command, out.String())

	if step.Output != nil && !Matches(step.Output, out.String()) {
		t.Errorf(
			"%s:%d: $ %s\nprinted:\n%s\nthe page shows:\n%s",
			name,
			step.Line,
			step.Command,
			out.String(),
			strings.Join(step.Output, "\n"),
		)
	}
}
