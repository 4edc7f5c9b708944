package runtime

import (
	"os"
	"testing"

	"trainyard/internal/fault"
	"trainyard/internal/logs"
)

func TestARunIsToldWhereToTellItsProgress(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.script(`echo '{"done": 12}' > "$TRAINYARD_PROGRESS"; echo "$TRAINYARD_PROGRESS"`)
	y.end(run)

	path, err := y.ProgressFile(run, 0)
	if err != nil || path != y.runDir(run)+"/progress.json" {
		t.Errorf("the file is %s, %v", path, err)
	}

	if got := y.output(run)[logs.Stdout]; got != path+"\n" {
		t.Errorf("the program was told %q, want %q", got, path)
	}

	if text, err := os.ReadFile(path); err != nil || string(text) != "{\"done\": 12}\n" {
		t.Errorf("it holds %q, %v", text, err)
	}

	if _, err := y.ProgressFile("j99.1", 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("of a run that is not here: %v", err)
	}
}
