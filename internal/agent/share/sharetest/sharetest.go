// Package sharetest is a GPU that does not exist, for tests of how GPUs are shared.
//
// Its driver and its NVML are libraries that are built from native/gpushare/fake, and the GPU is a file that all
// processes with them map. The test program is like a training loop. An agent finds the GPU if it has the environment
// of Env and the folder of the driver on its PATH, where there are an nvidia-smi and an nvidia-cuda-mps-control.
package sharetest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What the fake GPU is like, native/gpushare/fake.
const (
	UUID         = "GPU-fake"
	ContextBytes = 512 << 20 // that the driver needs for a process

	processes   = 64
	atProcesses = 4096
	processSize = 128
	lockOwner   = 512 + 8
)

// Names of what Build makes.
const (
	Library = "libtrainyard-gpu.so"
	Trainer = "trainer"
	// MPSControl starts MPS daemons, and writes what it did to a file of its name with .log.
	MPSControl = "nvidia-cuda-mps-control"
)

// Build builds the library, the fake driver and the test programs into a folder. sanitize is a sanitizer of the
// compiler, "" for none.
func Build(ctx context.Context, dir, sanitize string) error {
	root, err := repository()
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, filepath.Join(root, "native/gpushare/build.sh"), dir, "fake")
	cmd.Env = append(os.Environ(), "SANITIZE="+sanitize)

	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the library and the fake driver: %w\n%s", err, out)
	}

	return nil
}

// Overlay writes the file that lets go build -tags gpushare -overlay FILE put the library of a folder into the program,
// and returns its path. The file is in the same folder.
func Overlay(built string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}

	text, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "cmd", "trainyard", "gpushare.bin"): filepath.Join(built, Library),
	}})
	if err != nil {
		return "", err
	}

	path := filepath.Join(built, "overlay.json")

	return path, os.WriteFile(path, text, 0o600)
}

// repository returns the folder with the sources in which a test is run.
func repository() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root, nil
		}

		if root == filepath.Dir(root) {
			return "", errors.New("the tests are not run in the repository")
		}

		root = filepath.Dir(root)
	}
}

// GPU is a fake GPU.
type GPU struct {
	tb    testing.TB
	path  string
	built string // the folder with its driver
}

// New makes a GPU with some bytes of memory. Its driver was built into a folder.
func New(tb testing.TB, capacity uint64, built string) *GPU {
	tb.Helper()

	content := make([]byte, atProcesses+processes*processSize)
	binary.LittleEndian.PutUint64(content, capacity)
	binary.LittleEndian.PutUint64(content[8:], ContextBytes)

	path := filepath.Join(tb.TempDir(), "gpu")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}

	return &GPU{tb: tb, path: path, built: built}
}

// Env returns the environment in which programs find it.
func (g *GPU) Env() map[string]string {
	return map[string]string{"FAKE_GPU": g.path, "LD_LIBRARY_PATH": g.built}
}

// Share lets programs of all users reach it.
func (g *GPU) Share() {
	g.tb.Helper()

	//nolint:gosec // this is what it is for
	if err := errors.Join(os.Chmod(g.path, 0o666), os.Chmod(filepath.Dir(g.path), 0o755)); err != nil {
		g.tb.Fatal(err)
	}
}

func (g *GPU) read() []byte {
	g.tb.Helper()

	content, err := os.ReadFile(g.path)
	if err != nil {
		g.tb.Fatal(err)
	}

	return content
}

// Busy returns what it has done for each process so far.
func (g *GPU) Busy() map[int]time.Duration {
	g.tb.Helper()

	clocks := map[int]time.Duration{}
	content := g.read()

	for i := range processes {
		at := content[atProcesses+i*processSize:]
		if pid := binary.LittleEndian.Uint64(at); pid != 0 {
			clocks[int(pid)] = time.Duration(math.Float64frombits(binary.LittleEndian.Uint64(at[8:])))
		}
	}

	return clocks
}

// LockOwner returns the thread that has its lock, 0 if none has. A real GPU has none: a test that stops a process must
// not stop it with the lock.
func (g *GPU) LockOwner() int {
	g.tb.Helper()
	return int(binary.LittleEndian.Uint32(g.read()[lockOwner:]))
}
