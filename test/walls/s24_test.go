package walls_test

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/test/pypi"
)

// TestS24_EnvironmentsOfOthers: a researcher wants to read the packages of another, who may have them from a private
// index, and to put something of their own into the environment that others run in.
func TestS24_EnvironmentsOfOthers(t *testing.T) {
	t.Parallel()
	y := walled(t)
	index := pypi.Serve(t, pypi.Package{Name: "treasure", Version: "1.0", Code: "GOLD = 'nugget'"})
	head := fmt.Sprintf("python: {requirements: [treasure]}\nenv: {PIP_INDEX_URL: '%s'}\n", index.URL)
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	j := alice.submit(t, head+script(`echo "at $VIRTUAL_ENV"`, "python -c 'import treasure; print(treasure.GOLD)'"))
	alice.ended(t, j)

	out := alice.output(t, j)
	_, rest, found := strings.Cut(out, "at ")
	dir, _, _ := strings.Cut(rest, "\n")

	if !found || !strings.HasPrefix(dir, "/") || !strings.Contains(out, "nugget") {
		t.Fatalf("alice has no environment: %q", out)
	}

	// The same requirements, and knowing the path, are of no use to another user.
	attack := []string{
		"dir=" + dir,
		`grep -r nugget "$dir" 2>/dev/null && echo BROKEN read || true`,
		`ls "$dir" "$dir/bin" "$dir/.." 2>/dev/null && echo BROKEN list || true`,
		`echo evil > "$dir/evil.py" 2>/dev/null && echo BROKEN write || true`,
		`mkdir -p "$dir" 2>/dev/null && echo BROKEN mkdir || true`,
	}

	j = mallory.submit(t, head+script(append(attack, `echo "at $VIRTUAL_ENV"`)...))
	mallory.ended(t, j)

	out = mallory.output(t, j)
	if strings.Contains(out, "BROKEN") || !strings.Contains(out, "at /") || strings.Contains(out, "at "+dir+"\n") {
		t.Errorf("mallory: %q", out)
	}

	// Nor can a program change what later runs of the same user execute.
	own := []string{
		`site=$(python -c 'import treasure, os; print(os.path.dirname(treasure.__file__))')`,
		`echo "print('evil')" 2>/dev/null > "$site/treasure.py" && echo BROKEN write || true`,
		`rm -f "$site/treasure.py" 2>/dev/null && echo BROKEN remove || true`,
		`chmod u+w "$site" 2>/dev/null && echo BROKEN chmod || true`,
		`mv "$VIRTUAL_ENV" "$VIRTUAL_ENV.old" 2>/dev/null && echo BROKEN move || true`,
		`ln "$site/treasure.py" link.py 2>/dev/null && echo BROKEN link || true`,
		"echo tried",
	}

	j = alice.submit(t, head+script(own...))
	alice.ended(t, j)

	if out := alice.output(t, j); strings.Contains(out, "BROKEN") || !strings.Contains(out, "tried") {
		t.Errorf("alice: %q", out)
	}
}
