package newcomer_test

import (
	"path/filepath"
	"testing"

	"trainyard/internal/job"
)

// The dry run of a pipeline had blocks without names, and every job of it started now.
func TestNewcomer15ADryRunOfAPipeline(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "job.yaml")
	write(t, path, script("true", few, "name: prepare")+"---\n"+script("true", few, "name: train", "needs: [prepare]"))

	plan := day.ada.succeeds(t, "submit", "--dry-run", path).out
	has(t, "the plan", plan, "Options for prepare (", "starts after prepare")
	lacks(t, "the plan", plan, "Options for train")
}

// "All kinds that begin so" found nothing, and the hash of the CA was nowhere to be compared.
func TestNewcomer23KindsOfEventsThatBeginSo(t *testing.T) {
	t.Parallel()

	name := day.ada.submits(t, script("true", few))
	day.ada.awaits(t, name, job.Succeeded)

	for _, kind := range []string{"job.sub", "job.", "job"} {
		has(t, "events of kind "+kind, day.ada.succeeds(t, "events", "--job", name, "--kind", kind).out, "job.submitted")
	}

	has(t, "whoami", day.ada.succeeds(t, "whoami").out, "CA:")
}

// The output of a rank that a job does not have was empty, and that was no error.
func TestNewcomer35ARankThatIsNotThere(t *testing.T) {
	t.Parallel()

	name := day.ada.submits(t, script("true", few))
	day.ada.awaits(t, name, job.Succeeded)
	has(t, "the refusal", day.ada.exits(t, 102, "logs", name, "--rank", "7").err, "rank 7 of", "it has 1 rank")
}
