package main

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
)

func TestTheHelperIsStartedFromMemoryIfThatIsPossible(t *testing.T) {
	t.Parallel()

	log := slog.New(slog.DiscardHandler)
	for _, embedded := range [][]byte{nil, []byte("not a program")} {
		if path := helperPath(embedded, log); path != "" {
			t.Errorf("%q is started as %s", embedded, path)
		}
	}

	program, err := os.ReadFile("/bin/false")
	if err != nil {
		t.Fatal(err)
	}

	path := helperPath(program, log)
	if path == "" {
		t.Fatal("a program is not started from memory")
	}

	if err := exec.CommandContext(t.Context(), path).Run(); err == nil {
		t.Error("another program was started")
	}
}
