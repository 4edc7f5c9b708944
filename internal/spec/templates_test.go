package spec

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"trainyard/internal/job"
)

func TestTemplatesAreValid(t *testing.T) {
	t.Parallel()

	all, err := Templates()
	if err != nil {
		t.Fatal(err)
	}

	files, err := fs.Glob(templateFiles, "templates/*.yaml")
	if err != nil || len(files) != len(all) {
		t.Errorf("%d templates of %d files (%v)", len(all), len(files), err)
	}

	for _, one := range all {
		if !strings.HasPrefix(one.Text, "# "+one.Title+".\n") || strings.Contains(one.Title, "\n") {
			t.Errorf("%s: the first line is not its title %q", one.Name, one.Title)
		}

		// What is a comment is valid too.
		for _, text := range []string{one.Text, strings.NewReplacer("\n# ", "\n", "\n  # ", "\n  ").Replace(one.Text)} {
			if _, err := Parse([]byte(text), Options{Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
				t.Errorf("%s: %v\n%s", one.Name, err, text)
			}
		}
	}
}

func TestAJobIsSubmittedAgainWithoutWhatHasPassed(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)
	needs := []string{"prepare", "j12", "data@last"}
	s := job.Spec{Run: "true", Deadline: &now, LateCost: 2, Needs: needs, After: job.AfterAny}

	left := Again(&s, now)
	if !left.Deadline || s.Deadline != nil || s.LateCost != 0 {
		t.Errorf("the deadline that has passed stays: %+v", s)
	}
	if len(left.Needs) != 1 || left.Needs[0] != "prepare" || len(s.Needs) != 2 || s.After != job.AfterAny || needs[0] != "prepare" {
		t.Errorf("left out %v of %v, after %s", left.Needs, s.Needs, s.After)
	}

	later := now.Add(time.Hour)
	s = job.Spec{Run: "true", Deadline: &later, Needs: []string{"prepare"}, After: job.AfterAny}

	if left := Again(&s, now); left.Deadline || s.Deadline == nil || len(s.Needs) != 0 || s.After != "" {
		t.Errorf("left out %+v of %+v", left, s)
	}
}
