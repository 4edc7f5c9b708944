package yard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/auth"
)

// ticksPerSecond is the unit of /proc/PID/stat, the same on every Linux.
const ticksPerSecond = 100

// CPU returns the processor time that the server's process has used so far.
func (y *Yard) CPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(y.daemons.PID("server")) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read the server's processor time: %w", err)
	}

	return cpuOf(string(text))
}

// cpuOf reads user and system time, the 14th and 15th field. The second field
// is the program's name in brackets and may hold blanks.
func cpuOf(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("%.60q is not a line of /proc/PID/stat", stat)
	}

	var ticks int64
	for _, text := range fields[11:13] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the server's processor time: %w", err)
		}

		ticks += n
	}

	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
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
