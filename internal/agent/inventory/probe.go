package inventory

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fleet"
)

//go:embed probe.py
var probeScript string

const (
	// probeTimeout bounds a probe of all GPUs. Most of that time is spent loading PyTorch.
	probeTimeout = 60 * time.Second
	probeOutput  = 64 << 10
)

// measures holds the measured speeds of the GPUs of this machine. They are stored in a file,
// because measuring would delay each restart of the agent.
type measures struct {
	path string
	all  map[string]measure // by UUID
}

// measure is the result of one probe. It is valid for one driver version, because another may be
// faster or slower.
type measure struct {
	Driver  string    `json:"driver"`
	Numbers string    `json:"numbers"` // bf16, fp16 or fp32
	TFLOPS  float64   `json:"tflops"`
	At      time.Time `json:"at"`
}

// openMeasures reads the stored measurements. A file that cannot be read is reported and replaced.
func openMeasures(path string) (*measures, error) {
	m := &measures{path: path, all: map[string]measure{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}

	if err == nil {
		err = json.Unmarshal(text, &m.all)
	}

	if err != nil {
		m.all, err = map[string]measure{}, fmt.Errorf("read GPU probe results: %w", err)
	}

	return m, err
}

// of returns the measured TFLOPS of a GPU, 0 if it was not measured.
func (m *measures) of(g *fleet.GPU) float64 {
	if found := m.all[g.UUID]; found.Driver == g.Driver {
		return found.TFLOPS
	}

	return 0
}

func (m *measures) save() error {
	text, err := json.MarshalIndent(m.all, "", "  ")
	if err == nil {
		err = atomicfile.Write(m.path, text, atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("write GPU probe results: %w", err)
	}

	return nil
}

// pythons lists the interpreters that may have PyTorch, in the order in which to try them. A
// configured interpreter is the only one.
func pythons(named string) []string {
	if named != "" {
		return []string{named}
	}

	return []string{"python3", "/usr/bin/python3"}
}

// probe runs the helper on the GPUs with the first interpreter that has PyTorch. If none has it,
// that is not an error: the speeds then come from the table of GPU models.
func probe(ctx context.Context, interpreters []string, gpus []fleet.GPU, now time.Time) (map[string]measure, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	for _, name := range interpreters {
		path, err := exec.LookPath(name)
		if err != nil {
			continue // not installed on this machine
		}

		text, err := runProbe(ctx, path, gpus)
		if err != nil {
			return nil, fmt.Errorf("probe GPUs with %s: %w", path, err)
		}

		found, missing, err := parseProbe(text, gpus, now)
		if err != nil || !missing {
			return found, err
		}
	}

	return nil, nil
}

func runProbe(ctx context.Context, python string, gpus []fleet.GPU) ([]byte, error) {
	names := make([]string, len(gpus))
	for i := range gpus {
		names[i] = gpus[i].UUID
	}

	// The helper exits by itself if it outlives the agent.
	cmd := exec.CommandContext(ctx, python, "-c", probeScript, strconv.Itoa(int(probeTimeout.Seconds())))
	cmd.Dir = "/" // python also looks for modules in its working directory
	cmd.Env = append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+strings.Join(names, ","))
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	text, readErr := io.ReadAll(io.LimitReader(out, probeOutput))

	if err := cmd.Wait(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no result within %s", probeTimeout)
		}

		return nil, err
	}

	return text, readErr
}

// parseProbe parses the output of the helper: a line for each GPU, or one that says that PyTorch is
// missing. Other lines come from PyTorch itself and are ignored.
func parseProbe(text []byte, gpus []fleet.GPU, now time.Time) (found map[string]measure, missing bool, err error) {
	found = map[string]measure{}
	var errs []error
	for line := range strings.Lines(string(text)) {
		var said struct {
			GPU     int     `json:"gpu"`
			Numbers string  `json:"numbers"`
			TFLOPS  float64 `json:"tflops"`
			Error   string  `json:"error"`
			Missing string  `json:"missing"`
		}

		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &said) != nil {
			continue
		}

		switch {
		case said.Missing != "":
			missing = true
		case said.GPU < 0 || said.GPU >= len(gpus):
			errs = append(errs, fmt.Errorf("probe GPUs: no GPU %d", said.GPU))
		case said.Error != "":
			errs = append(errs, fmt.Errorf("probe GPU %d: %s", gpus[said.GPU].Index, word(said.Error)))
		case said.TFLOPS <= 0 || said.TFLOPS > 1e6 || !slices.Contains([]string{"bf16", "fp16", "fp32"}, said.Numbers):
			errs = append(
				errs,
				fmt.Errorf("probe GPU %d: implausible result %g TFLOPS in %.10q", gpus[said.GPU].Index, said.TFLOPS, said.Numbers),
			)
		default:
			gpu := &gpus[said.GPU]
			found[gpu.UUID] = measure{Driver: gpu.Driver, Numbers: said.Numbers, TFLOPS: said.TFLOPS, At: now}
		}
	}

	return found, missing, errors.Join(errs...)
}
