package yard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/auth"
)

// ticksPerSecond is the unit of /proc/PID/stat, the same on every Linux.
const ticksPerSecond = 100

// CPU returns the processor time that the server's process has used so far.
func (y *Yard) CPU() (time.Duration, error) {
	own, _, err := y.cpuOf("server")
	return own, err
}

// AgentCPU returns the processor time that the agent's process has used so far, and that of the processes which it has
// started: supervisors and the programs of jobs that have ended, and those that still run, such as its watcher.
func (y *Yard) AgentCPU() (own, children time.Duration, err error) {
	own, children, err = y.cpuOf("agent")
	if err != nil {
		return 0, 0, err
	}

	lists, err := filepath.Glob(filepath.Join(processDir(y.daemons.PID("agent")), "task", "*", "children"))
	if err != nil {
		return 0, 0, fmt.Errorf("list the agent's processes: %w", err)
	}

	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}

		for pid := range strings.FieldsSeq(string(text)) {
			stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
			if err != nil {
				continue // it has ended
			}

			used, waited, err := cpuOf(string(stat))
			if err != nil {
				return 0, 0, err
			}

			children += used + waited
		}
	}

	return own, children, nil
}

func (y *Yard) cpuOf(daemon string) (own, children time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(processDir(y.daemons.PID(daemon)), "stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("read the processor time of the %s: %w", daemon, err)
	}

	return cpuOf(string(text))
}

func processDir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// cpuOf reads user and system time, the 14th and 15th field, and those of the children that were waited for, the two
// after them. The second field is the program's name in brackets and may hold blanks.
func cpuOf(stat string) (own, children time.Duration, err error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 15 {
		return 0, 0, fmt.Errorf("%.60q is not a line of /proc/PID/stat", stat)
	}

	var ticks [4]int64
	for i, text := range fields[11:15] {
		ticks[i], err = strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read a processor time: %w", err)
		}
	}

	tick := time.Second / ticksPerSecond

	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick, nil
}

// Memory returns how much memory the server's process has resident, in bytes.
func (y *Yard) Memory() (int64, error) { return Resident(y.PID("server")) }

// Resident returns how much memory a process has resident, in bytes.
func Resident(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}

	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, errors.New("read the memory of a process: no such field")
	}

	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}

	return pages * int64(os.Getpagesize()), nil
}

// Metric returns one of the server's own figures, by its name with labels.
func (y *Yard) Metric(ctx context.Context, name string) (float64, error) {
	config, err := auth.PinnedTLS(y.ca)
	if err != nil {
		return 0, err
	}

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}

	return metric(ctx, client, y.url+"/metrics", name)
}

// MetricAt returns a figure that a process serves at an address over plain HTTP, as agents do.
func MetricAt(ctx context.Context, address, name string) (float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	return metric(ctx, client, "http://"+address+"/metrics", name)
}

func metric(ctx context.Context, client *http.Client, url, name string) (float64, error) {
	text, err := get(ctx, client, url)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}

	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}

	return 0, fmt.Errorf("metric %s not found", name)
}
