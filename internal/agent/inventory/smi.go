package inventory

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

const (
	// smiTimeout bounds a call of nvidia-smi, which hangs when a GPU is in trouble.
	smiTimeout = 20 * time.Second
	// smiOutput bounds what is read of its answer.
	smiOutput = 16 << 20
	// maxGPUs bounds how many devices are believed.
	maxGPUs = 256
	// maxWord bounds each text that is taken over.
	maxWord = 200
)

// smiLog is the part of `nvidia-smi -q -x` that is used.
type smiLog struct {
	Driver string   `xml:"driver_version"`
	GPUs   []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	Name   string `xml:"product_name"`
	UUID   string `xml:"uuid"`
	Memory string `xml:"fb_memory_usage>total"`
	// Pending says that memory pages failed and wait for a reset.
	Pending  string       `xml:"retired_pages>pending_retirement"`
	Remap    string       `xml:"remapped_rows>remapped_row_failure"`
	Recovery string       `xml:"gpu_recovery_action"`
	Procs    []smiProcess `xml:"processes>process_info"`
}

type smiProcess struct {
	PID string `xml:"pid"`
}

// viaSMI asks nvidia-smi. A machine that lacks it has no GPUs.
func viaSMI(ctx context.Context, command string) ([]fleet.GPU, []int, error) {
	path, err := exec.LookPath(command)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find %s: %w", command, err)
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-q", "-x")
	cmd.WaitDelay = time.Second // a child of a killed script may hold the pipe
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", command, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("run %s: %w", command, err)
	}
	text, readErr := io.ReadAll(io.LimitReader(out, smiOutput))
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer within %s", smiTimeout)
		}
		return nil, nil, fmt.Errorf("ask %s for GPUs: %w: %.200s", command, err, firstLine(text))
	}
	if readErr != nil {
		return nil, nil, fmt.Errorf("ask %s for GPUs: %w", command, readErr)
	}
	return parseSMI(text)
}

// parseSMI reads the answer of nvidia-smi: the GPUs and the indices of those on
// which a process runs.
func parseSMI(text []byte) ([]fleet.GPU, []int, error) {
	var log smiLog
	if err := xml.Unmarshal(text, &log); err != nil {
		return nil, nil, fmt.Errorf("read answer of nvidia-smi: %w", err)
	}
	if len(log.GPUs) > maxGPUs {
		return nil, nil, fmt.Errorf("read answer of nvidia-smi: it names %d GPUs", len(log.GPUs))
	}
	var all []fleet.GPU
	var busy []int
	for i, g := range log.GPUs {
		all = append(all, g.gpu(i, log.Driver))
		if len(g.Procs) > 0 {
			busy = append(busy, i)
		}
	}
	return all, busy, nil
}

// gpu takes over one device. One whose memory cannot be read is kept, with the
// error, so that people see it and no job gets it.
func (g smiGPU) gpu(index int, driver string) fleet.GPU {
	out := fleet.GPU{Index: index, UUID: word(g.UUID), Model: word(g.Name), Driver: word(driver)}
	memory, err := job.ParseBytes(strings.TrimSpace(g.Memory))
	switch {
	case err != nil || memory <= 0:
		out.Error = fmt.Sprintf("its memory cannot be read: %s", word(g.Memory))
	case out.UUID == "" || !strings.HasPrefix(out.UUID, "GPU-"):
		out.Error = "its UUID cannot be read"
	case strings.EqualFold(strings.TrimSpace(g.Remap), "yes"):
		out.Error = "its memory has rows that could not be remapped"
	case strings.EqualFold(strings.TrimSpace(g.Pending), "yes"):
		out.Error = "its memory has pages that wait to be retired; it needs a reset"
	case needsRecovery(g.Recovery):
		out.Error = "it asks for recovery: " + word(g.Recovery)
	}
	if err == nil {
		out.Memory = memory
	}
	if out.UUID == "" {
		out.UUID = "index-" + strconv.Itoa(index)
	}
	return out
}

func needsRecovery(action string) bool {
	switch strings.ToLower(strings.TrimSpace(action)) {
	case "", "none", "n/a":
		return false
	}
	return true
}

// word makes a text from outside short, and one line.
func word(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxWord {
		s = strings.ToValidUTF8(s[:maxWord], "")
	}
	return s
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return word(line)
}
