package inventory

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/executable"
	"trainyard/internal/fleet"
	"trainyard/test/fuzzing"
)

func parseFile(t *testing.T, path string) []device {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	all, err := parseSMI(text)
	if err != nil {
		t.Fatal(err)
	}

	return all
}

func TestSMIAnswerIsRead(t *testing.T) {
	t.Parallel()
	all := parseFile(t, "testdata/smi.xml")
	var got []fleet.GPU

	var busy []int
	for i := range all {
		got = append(got, all[i].gpu)

		if all[i].busy() {
			busy = append(busy, i)
		}
	}

	want := []fleet.GPU{
		{
			Index:  0,
			UUID:   "GPU-00000000-0000-0000-0000-000000000000",
			Model:  "NVIDIA H200",
			Memory: 143771 << 20,
			Driver: "580.159.04",
			Watts:  650,
		},
		{
			Index:  1,
			UUID:   "GPU-11111111-1111-1111-1111-111111111111",
			Model:  "NVIDIA A100-SXM4-80GB",
			Memory: 80 << 30,
			Driver: "580.159.04",
		},
		{
			Index:  2,
			UUID:   "GPU-22222222-2222-2222-2222-222222222222",
			Model:  "NVIDIA A100-SXM4-80GB",
			Driver: "580.159.04",
			Error:  "cannot read memory size: [Unknown Error]",
		},
		{
			Index:  3,
			UUID:   "GPU-33333333-3333-3333-3333-333333333333",
			Model:  "NVIDIA A100-SXM4-80GB",
			Memory: 80 << 30,
			Driver: "580.159.04",
			Error:  remapFailed,
		},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]int{1}, busy); diff != "" {
		t.Errorf("busy (-want +got):\n%s", diff)
	}

	if d := all[0]; d.bus != "0000:00:06" || d.draw != 78.12 || d.uncorrected != 3 || d.hot != "" || d.recovery != "" {
		t.Errorf("readings of the first: %+v", d)
	}

	if d := all[1]; d.draw != -1 || d.uncorrected != -1 {
		t.Errorf("readings that are not there: %+v", d)
	}

	if all[3].recovery != "Reset" {
		t.Errorf("recovery %q", all[3].recovery)
	}
}

func TestSMITellsOfFaults(t *testing.T) {
	t.Parallel()
	type reading struct {
		uuid, err, recovery, hot string
		uncorrected              int64
		watts                    float64
	}

	var got []reading
	for _, d := range parseFile(t, "testdata/smi-faults.xml") {
		got = append(got, reading{d.gpu.UUID, d.gpu.Error, d.recovery, d.hot, d.uncorrected, d.gpu.Watts})
	}

	want := []reading{
		{"GPU-00000000", remapPending, "", "", -1, 0},
		{"GPU-11111111", "", "Drain and Reset", "", -1, 0},
		{"GPU-22222222", "", "", "at 92 °C", -1, 0},
		{"GPU-33333333", "", "", "at the temperature limit", -1, 0},
		{"GPU-44444444", "", "", "reported by the driver", -1, 0},
		{"GPU-55555555", unrepairable, "", "", 7, 0},
		{"index-6", "cannot read UUID", "", "", -1, 0},
		{"GPU-77777777", retiring, "", "", -1, 250},
	}

	if diff := cmp.Diff(want, got, cmp.AllowUnexported(reading{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSMITellsWhoComputes(t *testing.T) {
	t.Parallel()
	all := parseFile(t, "testdata/smi-users.xml")

	var busy []bool
	for i := range all {
		busy = append(busy, all[i].busy())
	}

	// A desktop; a training beside it; a game; memory that no visible process has;
	// the same on a GPU that is cut into slices; a row without a process.
	if diff := cmp.Diff([]bool{false, true, true, true, false, false}, busy); diff != "" {
		t.Errorf("busy (-want +got):\n%s", diff)
	}

	want := []Process{{GPU: 1, PID: 1201, Program: "/usr/bin/python3", Memory: 2 << 30}}
	if diff := cmp.Diff(want, all[1].procs, cmp.AllowUnexported(Process{})); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

// TestSMIOfARealMachine reads what an H200 says: shared/data/gpu-specs/nvidia-smi-q-h200.xml.
func TestSMIOfARealMachine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(os.Getenv("TRAINYARD_DATA"), "gpu-specs", "nvidia-smi-q-h200.xml")
	if os.Getenv("TRAINYARD_DATA") == "" {
		path = filepath.Join("..", "..", "..", "..", "shared", "data", "gpu-specs", "nvidia-smi-q-h200.xml")
	}

	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skip("gpu-specs/nvidia-smi-q-h200.xml is not there: set TRAINYARD_DATA to read it")
	}

	all := parseFile(t, path)

	want := fleet.GPU{
		UUID:   "GPU-00000000-0000-0000-0000-000000000000",
		Model:  "NVIDIA H200",
		Memory: 143771 << 20,
		Driver: "580.159.04",
		Watts:  700,
	}

	if len(all) != 1 || all[0].gpu != want {
		t.Fatalf("%+v", all)
	}

	if d := all[0]; d.draw != 78.12 || d.uncorrected != 0 || d.hot != "" || d.recovery != "" || d.busy() ||
		d.bus != "0000:00:06" {
		t.Errorf("readings %+v", d)
	}
}

// script writes a program that stands in for nvidia-smi.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := executable.Write(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestSMICommand(t *testing.T) {
	t.Parallel()
	xml, err := filepath.Abs("testdata/smi.xml")
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name, command string
		gpus          int
		problem       string
	}{
		{"no nvidia-smi means no GPUs", "nvidia-smi-that-is-not-there", 0, ""},
		{"an answer", script(t, "cat "+xml), 4, ""},
		{"a driver that does not work", script(t, "echo Failed to initialize NVML; exit 9"), 0, "Failed to initialize NVML"},
		{"an answer that is no XML", script(t, "echo hello"), 0, "parse output of nvidia-smi"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := viaSMI(t.Context(), tt.command)
			if len(got) != tt.gpus {
				t.Errorf("%d GPUs, want %d", len(got), tt.gpus)
			}

			if (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("err = %v, want %q", err, tt.problem)
			}
		})
	}
}

func TestSMIThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())

	started := filepath.Join(t.TempDir(), "started")
	if out, err := exec.Command("mkfifo", started).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v %s", err, out)
	}

	command := script(t, "echo > "+started+"; exec sleep 1000")
	result := make(chan error, 1)
	go func() {
		_, err := viaSMI(ctx, command)
		result <- err
	}()

	if _, err := os.ReadFile(started); err != nil { // until the script runs
		t.Fatal(err)
	}

	cancel()

	if err := <-result; err == nil {
		t.Error("no error")
	}
}

func FuzzSMI(f *testing.F) {
	text, err := os.ReadFile("testdata/smi.xml")
	if err != nil {
		f.Fatal(err)
	}

	f.Add(text)

	for _, name := range []string{"testdata/smi-faults.xml", "testdata/smi-users.xml"} {
		text, err = os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(text)
	}

	f.Add([]byte("<nvidia_smi_log><gpu/></nvidia_smi_log>"))

	f.Add(
		[]byte(
			"<nvidia_smi_log><gpu><uuid>GPU-1</uuid><fb_memory_usage><total>9999999999 TiB</total></fb_memory_usage></gpu></nvidia_smi_log>",
		),
	)

	f.Add([]byte("No devices were found\n"))
	f.Add(fuzzing.Long(text))
	f.Add(append([]byte("<nvidia_smi_log>"), fuzzing.Long([]byte("<gpu>"))...))

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		all, err := parseSMI(text)
		if err != nil {
			return
		}

		for i, d := range all {
			gpu := d.gpu
			if gpu.Index != i || gpu.UUID == "" || gpu.Memory < 0 || gpu.Error == "" && gpu.Memory == 0 {
				t.Errorf("GPU %d: %+v", i, gpu)
			}

			for _, s := range []string{gpu.UUID, gpu.Model, gpu.Driver} {
				if len(s) > maxWord || !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r") {
					t.Errorf("GPU %d has the text %q", i, s)
				}
			}
		}

		for i, d := range all {
			if d.draw < -1 || d.uncorrected < -1 || d.gpu.Watts < 0 || d.named() != strings.HasPrefix(d.gpu.UUID, "GPU-") {
				t.Errorf("readings of GPU %d: %+v", i, d)
			}

			for _, p := range d.procs {
				if p.GPU != i || p.PID <= 0 || len(p.Program) > maxWord {
					t.Errorf("process of GPU %d: %+v", i, p)
				}
			}
		}
	})
}
