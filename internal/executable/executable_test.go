package executable

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

func TestWhatWasWrittenCanBeExecuted(t *testing.T) {
	t.Parallel()

	// Each of them writes while the others start processes. With os.WriteFile, some are busy in every run.
	const writers, files = 8, 100

	var group sync.WaitGroup
	for i := range writers {
		dir := t.TempDir()

		group.Go(func() {
			for j := range files {
				path := filepath.Join(dir, fmt.Sprint(j))
				if err := Write(path, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}

				if err := exec.Command(path).Run(); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
	}

	group.Wait()
}
