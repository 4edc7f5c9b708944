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
	// smiTimeout bounds a call of nvidia-smi, which hangs if a GPU has failed.
	smiTimeout = 20 * time.Second
	// smiOutput bounds how many bytes of its output are read.
	smiOutput = 16 << 20
)

// smiLog is the part of the output of `nvidia-smi -q -x` that is used. Where old and new drivers
// write the same value in different places, all of them are read.
type smiLog struct {
	Driver string   `xml:"driver_version"`
	GPUs   []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	ID     string `xml:"id,attr"`
	Name   string `xml:"product_name"`
	UUID   string `xml:"uuid"`
	Memory string `xml:"fb_memory_usage>total"`
	Used   string `xml:"fb_memory_usage>used"`
	Busy   string `xml:"utilization>gpu_util"`
	MIG    string `xml:"mig_mode>current_mig"`
	// Retiring says that memory pages failed and are retired at the next reset.
	Retiring     string       `xml:"retired_pages>pending_retirement"`
	RemapFailed  string       `xml:"remapped_rows>remapped_row_failure"`
	RemapPending string       `xml:"remapped_rows>remapped_row_pending"`
	Unrepairable string       `xml:"ecc_errors>unrepairable_memory"`
	Aggregate    smiErrors    `xml:"ecc_errors>aggregate"`
	Recovery     string       `xml:"gpu_recovery_action"`
	Heat         smiHeat      `xml:"temperature"`
	Slowed       string       `xml:"clocks_event_reasons>clocks_event_reason_hw_thermal_slowdown"`
	SlowedOld    string       `xml:"clocks_throttle_reasons>clocks_throttle_reason_hw_thermal_slowdown"`
	Power        smiPower     `xml:"gpu_power_readings"`
	PowerOld     smiPower     `xml:"power_readings"`
	Procs        []smiProcess `xml:"processes>process_info"`
}

type smiErrors struct {
	Parity string `xml:"sram_uncorrectable_parity"`
	SecDed string `xml:"sram_uncorrectable_secded"`
	SRAM   string `xml:"sram_uncorrectable"`
	DRAM   string `xml:"dram_uncorrectable"`
	Double string `xml:"double_bit>total"`
	// Exceeded says that the on-chip memory had more errors than allowed.
	Exceeded string `xml:"sram_threshold_exceeded"`
}

type smiHeat struct {
	Now       string `xml:"gpu_temp"`
	Slow      string `xml:"gpu_temp_slow_threshold"`
	Left      string `xml:"gpu_temp_tlimit"` // degrees below the temperature at which it slows down
	SlowsLeft string `xml:"gpu_temp_slow_tlimit_threshold"`
}

type smiPower struct {
	Limit    string `xml:"current_power_limit"`
	LimitOld string `xml:"power_limit"`
	Instant  string `xml:"instant_power_draw"`
	Average  string `xml:"average_power_draw"`
	Draw     string `xml:"power_draw"`
}

type smiProcess struct {
	PID    string `xml:"pid"`
	Type   string `xml:"type"` // C for compute, G for graphics, C+G for both
	Name   string `xml:"process_name"`
	Memory string `xml:"used_memory"`
}

// viaSMI lists the GPUs by nvidia-smi. A machine without that command has no GPUs.
func viaSMI(ctx context.Context, command string) ([]device, error) {
	path, err := exec.LookPath(command)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", command, err)
	}

	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, path, "-q", "-x")
	cmd.WaitDelay = time.Second // a child of a killed script may keep the pipe open
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", command, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", command, err)
	}

	text, readErr := io.ReadAll(io.LimitReader(out, smiOutput))
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no response within %s", smiTimeout)
		}

		return nil, fmt.Errorf("query GPUs with %s: %w: %.200s", command, err, firstLine(text))
	}

	if readErr != nil {
		return nil, fmt.Errorf("query GPUs with %s: %w", command, readErr)
	}

	return parseSMI(text)
}

// parseSMI parses the output of nvidia-smi.
func parseSMI(text []byte) ([]device, error) {
	var log smiLog
	if err := xml.Unmarshal(text, &log); err != nil {
		return nil, fmt.Errorf("parse output of nvidia-smi: %w", err)
	}
	if len(log.GPUs) > maxGPUs {
		return nil, fmt.Errorf("parse output of nvidia-smi: %d GPUs reported", len(log.GPUs))
	}

	var all []device
	for i := range log.GPUs {
		all = append(all, log.GPUs[i].device(i, log.Driver))
	}

	return all, nil
}

// device converts one GPU. A GPU whose memory cannot be read is kept with the error, so that people
// see it and no job gets it.
func (g *smiGPU) device(index int, driver string) device {
	d := device{
		gpu: fleet.GPU{Index: index, UUID: word(g.UUID), Model: word(g.Name), Driver: word(driver)},
		bus: busName(g.ID), draw: -1, uncorrected: g.Aggregate.uncorrected(), hot: g.hot(),
		utilization: -1,
	}

	if celsius, ok := amount(g.Heat.Now); ok {
		d.celsius = celsius
	}

	if percent, ok := amount(g.Busy); ok && percent >= 0 {
		d.utilization = min(percent/100, 1)
	}

	if needsRecovery(g.Recovery) {
		d.recovery = word(g.Recovery)
	}

	memory, err := job.ParseBytes(strings.TrimSpace(g.Memory))
	switch {
	case err != nil || memory <= 0:
		d.gpu.Error = fmt.Sprintf("cannot read memory size: %s", word(g.Memory))
	case !strings.HasPrefix(d.gpu.UUID, "GPU-"):
		d.gpu.Error = "cannot read UUID"
	case yes(g.RemapFailed):
		d.gpu.Error = remapFailed
	case yes(g.Unrepairable), yes(g.Aggregate.Exceeded):
		d.gpu.Error = unrepairable
	case yes(g.RemapPending):
		d.gpu.Error = remapPending
	case yes(g.Retiring):
		d.gpu.Error = retiring
	}

	if err == nil {
		d.gpu.Memory = memory
	}

	if !strings.HasPrefix(d.gpu.UUID, "GPU-") {
		d.gpu.UUID = unnamedID(index)
	}

	for _, p := range []smiPower{g.PowerOld, g.Power} {
		for _, limit := range []string{p.LimitOld, p.Limit} {
			if w, ok := amount(limit); ok && w > 0 {
				d.gpu.Watts = w
			}
		}

		for _, draw := range []string{p.Draw, p.Average, p.Instant} {
			if w, ok := amount(draw); ok && w >= 0 {
				d.draw = w
			}
		}
	}

	d.use(g.processes(index), bytes(g.Used), strings.EqualFold(strings.TrimSpace(g.MIG), "enabled"))

	return d
}

func (g *smiGPU) processes(index int) []Process {
	var all []Process
	for _, p := range g.Procs {
		pid, err := strconv.ParseInt(strings.TrimSpace(p.PID), 10, 32)
		if err != nil || pid <= 0 {
			continue // an empty row
		}

		all = append(all, Process{
			GPU: index, PID: int(pid), Program: word(p.Name), Memory: bytes(p.Memory),
			paints: strings.TrimSpace(p.Type) == "G",
		})
	}

	return all
}

// hot says at which temperature the GPU slows itself down, "" if heat does not slow it down at
// present.
func (g *smiGPU) hot() string {
	now, ok1 := amount(g.Heat.Now)
	slow, ok2 := amount(g.Heat.Slow)
	if ok1 && ok2 && slow > 0 && now >= slow {
		return fmt.Sprintf("at %.0f °C", slow)
	}

	left, ok1 := amount(g.Heat.Left)

	slow, ok2 = amount(g.Heat.SlowsLeft)
	if ok1 && ok2 && left <= slow {
		return "at the temperature limit"
	}
	if active(g.Slowed) || active(g.SlowedOld) {
		return "reported by the driver"
	}

	return ""
}

// uncorrected sums up the uncorrectable errors, -1 if the driver reports none of the counters.
func (e *smiErrors) uncorrected() int64 {
	sum := int64(-1)
	for _, s := range []string{e.Parity, e.SecDed, e.SRAM, e.DRAM, e.Double} {
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 48); err == nil && n >= 0 {
			sum = max(sum, 0) + n
		}
	}

	return sum
}

func needsRecovery(action string) bool {
	switch strings.ToLower(strings.TrimSpace(action)) {
	case "", "none", "n/a":
		return false
	}

	return true
}

func yes(s string) bool    { return strings.EqualFold(strings.TrimSpace(s), "yes") }
func active(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "active") }

// amount parses a number with a unit, such as "84.28 W". It returns false for N/A.
func amount(s string) (float64, bool) {
	number, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	v, err := strconv.ParseFloat(number, 64)
	return v, err == nil && v > -1e6 && v < 1e6
}

// bytes parses an amount of memory, 0 if it is not a number.
func bytes(s string) job.Bytes {
	b, err := job.ParseBytes(strings.TrimSpace(s))
	if err != nil {
		return 0
	}

	return b
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return word(line)
}
