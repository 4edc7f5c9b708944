package jobfile

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestShellReadsQuotedWordsAsTheyAre(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no shell")
		}

		t.Skip("no shell here")
	}

	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[ -~\n\té]{0,12}`), 2, 5).Draw(rt, "words")
		line := CommandLine(append([]string{"printf", `%s\0`}, words...))
		out, err := exec.CommandContext(context.Background(), shell, "-c", line).Output()
		if err != nil {
			rt.Fatalf("%q: %v", line, err)
		}

		if want := strings.Join(words, "\x00") + "\x00"; string(out) != want {
			rt.Fatalf("%q gives %q, want %q", line, out, want)
		}
	})

	if got := CommandLine([]string{"a | b"}); got != "a | b" {
		t.Errorf("a single word is a line: %q", got)
	}
}

func TestAJobToWorkInMayBeIdle(t *testing.T) {
	t.Parallel()

	text, err := Command{GPUs: "1", Idle: "30m"}.File("sleep 1")
	if err != nil {
		t.Fatal(err)
	}

	if want := "interactive:\n    idle: 30m\n"; !strings.Contains(string(text), want) {
		t.Errorf("the job file\n%slacks\n%s", text, want)
	}
}
