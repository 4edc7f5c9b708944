package walls_test

import (
	"strings"
	"testing"
)

// attack is what a job prints to get hold of the terminal of whoever reads its output: it sets the clipboard and the
// title, clears the screen, forges a link, and says some of it with the control characters of C1.
const attack = `printf '\033]52;c;ZXZpbA==\007\033]0;owned\007\033[2J\033[H` +
	`\033]8;;http://evil\033\\click\033]8;;\033\\` +
	`\302\233\062J\233\062J\033[31mred\033[0m done\n'`

// TestS15_OutputDoesNotActOnTheTerminal reads the output of a job on a terminal, as an admin does who looks at the job
// of another.
func TestS15_OutputDoesNotActOnTheTerminal(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	mallory := y.user(t, "mallory")
	j := mallory.submit(t, script(attack))
	mallory.ended(t, j)

	harmless := func(name, shown string) {
		t.Helper()

		rest := strings.ReplaceAll(strings.ReplaceAll(shown, "\x1b[31m", ""), "\x1b[0m", "")
		if strings.Contains(rest, "\x1b]") || strings.ContainsAny(rest, "\a\u009b") || strings.Contains(rest, "\x1b[2J") ||
			strings.Contains(rest, "\x9b2J") {
			t.Errorf("%s lets control sequences through: %q", name, shown)
		}
	}

	shown := y.admin.sees(t, "logs", string(j))
	harmless("logs", shown)

	if !strings.Contains(shown, "^[]52;c;ZXZpbA==^G") || !strings.Contains(shown, `\x9b2J`) ||
		!strings.Contains(shown, "\x1b[31mred\x1b[0m done") {
		t.Errorf("what the job printed is not shown: %q", shown)
	}

	harmless("logs -o json", y.admin.sees(t, "logs", string(j), "-o", "json"))
	harmless("logs -f", y.admin.sees(t, "logs", "-f", string(j)))
	harmless("run", mallory.sees(t, "run", "-y", "--", attack))

	// Who wants the sequences gets them, and programs get what the job printed.
	if shown := y.admin.sees(t, "logs", "--raw", string(j)); !strings.Contains(shown, "\x1b]52;c;ZXZpbA==\a") {
		t.Errorf("logs --raw shows %q", shown)
	}

	if out := y.admin.must(t, "logs", string(j)); !strings.Contains(out, "\x1b]52;c;ZXZpbA==\a") {
		t.Errorf("a pipe gets %q", out)
	}
}
