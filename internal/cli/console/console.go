// Package console is what the commands share: the streams, the formats and the questions.
//
// Answers go to standard output in the format that was asked for; notes,
// hints, questions and progress go to standard error, and hints, progress and
// colours only where a person looks. It knows nothing of jobs or yards and
// never ends the process. The commands of cli are written on top of it.
package console

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
)

// Env is all that the commands know of the machine they run on.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(key string) (string, bool)
	Clock          clock.Clock
	Entropy        io.Reader // for idempotency keys
	Version        string
	Commit         string                // that this program was built from
	GoVersion      string                // that it was built with
	ConfigDir      string                // holds the file with the logins
	CacheDir       string                // holds digests of files that were shipped before; "" keeps none
	IsTerminal     func(stream any) bool // asked about Stdin, Stdout and Stderr
	Width          func() int            // of the terminal; 0 if unknown
	Zone           *time.Location        // in which clock times are told; nil for UTC
	// ReadSecret reads a line from the terminal without showing it; nil reads it from Stdin.
	ReadSecret func(ctx context.Context) (string, error)
}

// System returns the real machine's Env.
func System(version string) Env {
	env := Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv,
		Clock: clock.Wall{}, Entropy: rand.Reader, Version: version, Zone: time.Local,
		IsTerminal: func(stream any) bool {
			f, ok := stream.(*os.File)
			return ok && term.IsTerminal(int(f.Fd()))
		},
		Width: func() int {
			width, _, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				return 0
			}

			return width
		},
		ReadSecret: readSecret,
	}

	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) { // also where the system itself does not know it
		env.ConfigDir = filepath.Join(dir, "trainyard")
	} else if dir, err := os.UserConfigDir(); err == nil {
		env.ConfigDir = filepath.Join(dir, "trainyard")
	}

	if dir, err := os.UserCacheDir(); err == nil {
		env.CacheDir = filepath.Join(dir, "trainyard")
	}

	return env
}

// readSecret reads a line from the terminal without showing it, and leaves the
// terminal as it was even if ctx ends meanwhile.
func readSecret(ctx context.Context) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}

	text, err := line(ctx, func() (string, error) {
		text, err := term.ReadPassword(fd)
		return string(text), err
	})

	if ctx.Err() != nil {
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}

	return text, err
}

// Console is what a command has to do with while it runs.
type Console struct {
	Env
	Output  string // format chosen by -o
	Quiet   bool   // ids only
	Yes     bool   // ask nothing
	NoColor bool
	In      *bufio.Reader // standard input
}

// New returns a console on this machine.
func New(env Env) *Console {
	return &Console{Env: env, Output: Table, In: bufio.NewReader(env.Stdin)}
}

// OnTerminal reports whether a stream is one that a person looks at.
func (c *Console) OnTerminal(stream any) bool {
	return c.IsTerminal != nil && c.IsTerminal(stream)
}

// Getenv returns a variable of the environment, "" if it is not set.
func (c *Console) Getenv(key string) string {
	if c.LookupEnv == nil {
		return ""
	}

	value, _ := c.LookupEnv(key)

	return value
}

// Color reports whether what goes to this stream may be coloured.
func (c *Console) Color(stream any) bool {
	return !c.NoColor && c.Getenv("NO_COLOR") == "" && c.Getenv("TERM") != "dumb" && c.OnTerminal(stream)
}

// Columns returns how many characters a line on a stream may have: those of the
// terminal, or as many as any terminal has.
func (c *Console) Columns(stream any) int {
	const usual = 80
	if c.Width == nil || !c.OnTerminal(stream) {
		return usual
	}
	if n := c.Width(); n > 0 {
		return n
	}

	return usual
}

// UTF8 reports whether more than ASCII can be shown, as far as the locale tells. The
// console of a Linux machine has letters, but nothing to draw with.
func (c *Console) UTF8() bool {
	if term := c.Getenv("TERM"); term == "linux" || term == "dumb" {
		return false
	}

	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set counts
		if value := strings.ToUpper(c.Getenv(key)); value != "" {
			return strings.Contains(value, "UTF-8") || strings.Contains(value, "UTF8")
		}
	}

	return false
}

// Here returns a time as the clock of this machine shows it.
func (c *Console) Here(at time.Time) time.Time {
	if c.Zone == nil {
		return at.UTC()
	}

	return at.In(c.Zone)
}

// NewTable returns an empty table for standard output. A person's terminal cuts
// long lines; wide output and pipes get them whole.
func (c *Console) NewTable(head ...string) *table.Table { return c.NewTableFor(c.Stdout, head...) }

// NewTableFor returns an empty table for a stream.
func (c *Console) NewTableFor(stream any, head ...string) *table.Table {
	width := 0
	if c.Output != Wide && c.OnTerminal(stream) && c.Width != nil {
		width = c.Width()
	}

	return table.New(c.Color(stream), width, head...)
}

// Note writes a line for the person at the terminal, beside the command's output.
func (c *Console) Note(format string, args ...any) {
	text := fmt.Sprintf(format+"\n", args...)
	if c.OnTerminal(c.Stderr) {
		text = table.Visible(text) // names and reasons in it may come from anybody
	}

	// A message that cannot be shown is no reason to fail what it is about.
	_, _ = io.WriteString(c.Stderr, text)
}

// Next suggests commands, to people only.
func (c *Console) Next(commands ...string) {
	if !c.OnTerminal(c.Stderr) || c.Quiet || c.Output == JSON || c.Output == YAML {
		return
	}

	c.Note("\nNext:\n  %s", strings.Join(commands, "\n  "))
}

// Asks reports whether questions are asked at all: whether there is somebody, and they did not answer with -y.
func (c *Console) Asks() bool { return !c.Yes && c.OnTerminal(c.Stdin) && c.OnTerminal(c.Stderr) }

// Confirm asks a yes-or-no question. Where nobody can be asked the answer is yes:
// a script says what it means by calling the command.
func (c *Console) Confirm(ctx context.Context, question string) (bool, error) {
	if !c.Asks() {
		return true, nil
	}

	answer, err := c.Ask(ctx, question+" [Y/n] ")
	if err != nil {
		return false, err
	}

	switch strings.ToLower(answer) {
	case "", "y", "yes":
		return true, nil
	}

	return false, nil
}

// Ask shows a question and reads a line.
func (c *Console) Ask(ctx context.Context, question string) (string, error) {
	_, _ = fmt.Fprint(c.Stderr, question)
	return line(ctx, func() (string, error) { return c.In.ReadString('\n') })
}

// Secret shows a question and reads a line that is not shown.
func (c *Console) Secret(ctx context.Context, question string) (string, error) {
	if c.ReadSecret == nil {
		return c.Ask(ctx, question)
	}

	_, _ = fmt.Fprint(c.Stderr, question)
	defer c.Note("") // the line end that was not shown either

	return c.ReadSecret(ctx)
}

// line reads a line and gives up when ctx ends; reading goes on until the
// process ends then, since a read from a terminal cannot be called off.
func line(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}

	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()

	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		text := strings.TrimSpace(r.text)
		if errors.Is(r.err, io.EOF) && text != "" {
			r.err = nil
		}

		if r.err != nil {
			return "", fmt.Errorf("read the answer: %w", r.err)
		}

		return text, nil
	}
}
